"""What people do in the Dagster UI every day, in a real browser on real servers."""

import re

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.asset_graph import STORY, left, open_graph, show_all
from tests.browser.conftest import Place
from tests.browser.screen import Screen, needs_chromium
from tests.end_to_end.tiny_market import DAYS, HOURS, SYMBOL, day
from uqlob_pipeline.market.simulator import MarketSettings

pytestmark = [pytest.mark.browser, needs_chromium]

MADE = ("token_bins", "feature_scales", "encoder", "predictions", "gated_evaluation", "dataset_profile", "paper_report")
ALONE, NEW_DAYS = DAYS, (DAYS + 1, DAYS + 2, DAYS + 3)
STALE = """query Stale($asset: [String!]!, $days: [String!]!) { assetNodeOrError(assetKey: {path: $asset}) { ... on AssetNode {
  staleStatusByPartition(partitions: $days) staleCausesByPartition(partitions: $days) { reason } } } }"""


def simulate(place: Place, number: int, seed: int = 3) -> None:
    from uqlob_pipeline.market.simulator import simulate_day

    simulate_day(place.lake.root, SYMBOL, day(number).date, MarketSettings(seed=seed, hours=HOURS))


def partition(number: int) -> str:
    return f"{day(number).date}|{SYMBOL}"


def page_of(place: Place, asset: str, number: int) -> str:
    return f"{place.dagster}/assets/{asset}?view=partitions&partition={partition(number).replace('|', '%7C')}"


def open_new_day(place: Place, screen: Screen, number: int) -> None:
    """The page of a day recorded just now: the definitions are loaded again first, and until then the page drops the day."""
    screen.go(page_of(place, "book_events", number))
    screen.see(str(day(number).date), reload_every=15)
    screen.go(page_of(place, "book_events", number))


def stale(screen: Screen, asset: str, *numbers: int) -> tuple[list[str], list[str]]:
    """Each day's state, and every reason, as the UI asks for them."""
    output = screen.ask(STALE, asset=[asset], days=[partition(number) for number in numbers])["assetNodeOrError"]
    reasons = [cause["reason"] for causes in output["staleCausesByPartition"] for cause in causes]
    return output["staleStatusByPartition"], reasons


def test_the_asset_graph_reads_left_to_right_as_the_paper_does(place: Place, screen: Screen) -> None:
    output = open_graph(screen, place.dagster, *STORY)
    assert "Join the Dagster community" not in output
    places = [left(screen, asset) for asset in STORY]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    show_all(screen, *MADE)
    screen.settle()
    screen.shoot("asset_graph", width=1600)


def test_what_was_made_in_a_grouped_run_is_in_step_with_its_inputs(place: Place, screen: Screen) -> None:
    screen.go(page_of(place, "book_events", 0))
    screen.see("Materialized (4)", partition(0))
    for asset in ("book_events", "window_prices", "event_features", "window_labels"):
        assert stale(screen, asset, *range(DAYS)) == (["FRESH"] * DAYS, []), asset
    assert "Unsynced" not in screen.text


def test_one_asset_day_is_materialised_from_the_page_and_succeeds(place: Place, screen: Screen) -> None:
    simulate(place, ALONE)
    open_new_day(place, screen, ALONE)
    screen.see(partition(ALONE), "Missing (")
    screen.press("Materialize")
    screen.see("Launch runs to materialize book_events", "1 partition")
    screen.press("Launch 1 run")
    screen.until("the dialog closed", lambda: "Launch runs to materialize" not in screen.text)
    screen.go(page_of(place, "book_events", ALONE))
    output = screen.see(partition(ALONE), "Latest materialization", "checksums verified", patience=600, reload_every=10)
    assert re.search(r"checksums failed \(BTC-USD\)\s+0\b", output)
    assert "Unsynced" not in output
    assert place.lake.book_events(day(ALONE)).exists()
    screen.shoot("book_events_partition")


def test_a_backfill_of_new_days_makes_each_of_them(place: Place, screen: Screen) -> None:
    for number in NEW_DAYS:
        simulate(place, number)
    open_new_day(place, screen, NEW_DAYS[-1])
    screen.go(page_of(place, "book_events", NEW_DAYS[0]))
    screen.see(partition(NEW_DAYS[0]), "Missing (3)")
    screen.press("Materialize")
    screen.see("Launch runs to materialize book_events")
    dates = screen.driver.find_element(By.CSS_SELECTOR, "[role=dialog] input[type=text]")
    dates.send_keys(Keys.CONTROL, "a")
    dates.send_keys(f"[{day(NEW_DAYS[0]).date}...{day(NEW_DAYS[-1]).date}]", Keys.TAB)
    screen.see("3 partitions")
    screen.press("Launch backfill")
    screen.until("the dialog closed", lambda: "Launch runs to materialize" not in screen.text)
    backfills = (
        "query { partitionBackfillsOrError(limit: 1) { ... on PartitionBackfills { results { id status numPartitions } } } }"
    )

    def latest() -> dict[str, object] | None:
        found = screen.ask(backfills)["partitionBackfillsOrError"]["results"]
        return found[0] if found else None

    screen.until("a backfill that succeeded", lambda: (found := latest()) and "SUCCESS" in str(found["status"]), patience=600)
    found = latest()
    assert found is not None
    assert found["numPartitions"] == 3
    screen.go(f"{place.dagster}/runs/b/{found['id']}", height=700)
    screen.see("book_events", "100% completed", "Succeeded")
    screen.settle()
    screen.shoot("backfill")
    for number in NEW_DAYS:
        screen.go(page_of(place, "book_events", number))
        screen.see(partition(number), "Latest materialization", "checksums verified", reload_every=15)
        assert place.lake.book_events(day(number)).exists()
    assert stale(screen, "book_events", *NEW_DAYS) == (["FRESH"] * 3, [])
