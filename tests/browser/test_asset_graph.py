"""The Dagster UI in a real browser, short enough for every day: the rest is run by `make test-ui`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.asset_graph import STORY, left, open_graph
from tests.browser.conftest import Place, make_place, stop
from tests.browser.screen import Screen, needs_chromium
from tests.end_to_end.tiny_market import BY_MODEL, HOURS, SYMBOL, day
from uqlob_pipeline.defs.jobs import DAY_ASSETS, FIT_ASSETS
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day

pytestmark = needs_chromium


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Place]:
    """A lake with the dumps of one day, and a webserver in front of it."""
    made = make_place(tmp_path)
    simulate_day(made.lake.root, SYMBOL, day(0).date, MarketSettings(seed=3, hours=HOURS))
    process = made.start_webserver()
    yield made
    stop(process)


def test_the_asset_graph_shows_every_asset_from_dumps_to_report(served: Place, screen: Screen) -> None:
    assets = {"raw_dumps", *DAY_ASSETS, *FIT_ASSETS, *BY_MODEL, "dataset_profile", "forecasts", "paper_report", "study_rows"}
    shortened = {"threshold_multiplier", "calibrated_predictions", "economic_evaluation"}  # Dagster shortens names of this length
    open_graph(screen, served.dagster, *assets - shortened)
    screen.see("_multiplier")
    places = [left(screen, asset) for asset in STORY]
    assert places == sorted(places), "the graph reads from left to right"
    known = screen.ask("query { assetNodes { assetKey { path } groupName isMaterializable } }")["assetNodes"]
    assert {"/".join(node["assetKey"]["path"]) for node in known} == assets
    assert [node["assetKey"]["path"] for node in known if not node["isMaterializable"]] == [["raw_dumps"]]
