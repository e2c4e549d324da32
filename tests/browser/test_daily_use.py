"""Daily use in the browser: a damaged day stays visible, the report opens from Dagster, the sensor requests what is missing."""

import dataclasses
import os
import time

import pytest

from tests.browser.conftest import Place
from tests.browser.screen import Screen, needs_chromium
from tests.browser.test_dagster_ui import simulate
from tests.end_to_end.tiny_market import DAYS, HOURS, SYMBOL, day
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.market.simulator.market_settings import Faults

pytestmark = [pytest.mark.browser, needs_chromium]

GOOD, DAMAGED, LATER = DAYS + 5, DAYS + 6, DAYS + 7
SELECTOR = """{repositoryName: "__repository__", repositoryLocationName: "uqlob", sensorName: "new_dumps"}"""
START = f"mutation {{ startSensor(sensorSelector: {SELECTOR}) {{ __typename }} }}"
STOP = "mutation Stop($id: String!) { stopSensor(id: $id) { __typename } }"
TICKS = f"""query {{ sensorOrError(sensorSelector: {SELECTOR}) {{ ... on Sensor {{ id
  sensorState {{ ticks(limit: 5) {{ status skipReason runIds }} }} }} }} }}"""


def test_a_damaged_day_stays_visible_after_a_good_one(place: Place, screen: Screen) -> None:
    market = MarketSettings(seed=3, hours=HOURS, faults=Faults(lost_messages=1, garbage_lines=1))
    simulate_day(place.lake.root, SYMBOL, day(DAMAGED).date, market)
    simulate_day(place.lake.root, SYMBOL, day(GOOD).date, dataclasses.replace(market, faults=Faults()))
    replay = ("materialize", "--select", "book_events")
    damaged, good = (str(day(number).date) for number in (DAMAGED, GOOD))
    assert "book_events whole_day" in place.uqlob(*replay, "--from", damaged, "--to", damaged)
    place.uqlob(*replay, "--from", good, "--to", good)
    assert f"refused: {day(DAMAGED)} lost" in place.uqlob("status")
    screen.go(f"{place.dagster}/assets/book_events?view=checks&checkDetail=every_day_is_whole")
    screen.see("every_day_is_whole", "too damaged to be used", str(day(DAMAGED)), reload_every=20)
    screen.shoot("data_quality")


def test_the_report_opens_from_its_asset(place: Place, screen: Screen) -> None:
    screen.go(f"{place.dagster}/assets/paper_report")
    address = f"{place.dagster}/uqlob/report/index.html"
    assert screen.until("the link to the report", lambda: screen.links(address), reload_every=20) != []
    screen.go(address)
    screen.see("Which forecasts can I act on?", "Test days", f"{day(3).date} to {day(3).date}", "Coverage by test day")


def test_the_sensor_asks_for_no_run_of_a_current_lake_and_for_one_of_a_new_day(place: Place, screen: Screen) -> None:
    def quiet() -> None:
        for dump in (place.lake.root / "raw").rglob("*.jsonl*"):
            os.utime(dump, (time.time() - 600,) * 2)

    place.uqlob("materialize")
    quiet()
    screen.go(f"{place.dagster}/automation")
    screen.see("new_dumps")
    screen.ask(START)

    def ticks() -> list[dict]:
        """The ticks that have ended, latest first."""
        found = screen.ask(TICKS)["sensorOrError"]["sensorState"]["ticks"]
        return [tick for tick in found if tick["status"] != "STARTED"]

    (first, *_) = screen.until("a tick", ticks, patience=600)
    assert first["runIds"] == []
    assert "are current" in first["skipReason"]
    simulate(place, LATER)
    quiet()
    screen.until("a tick with a run", lambda: [tick for tick in ticks() if tick["runIds"]], patience=600)
    requested = [run for tick in ticks() for run in tick["runIds"]]
    assert len(requested) == 1
    screen.ask(STOP, id=screen.ask(TICKS)["sensorOrError"]["id"])
    screen.until("the new day", lambda: place.lake.window_labels(day(LATER)).exists(), patience=600)
