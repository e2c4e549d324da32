"""Forecasts for new days: moving the end of the test split trains nothing again."""

import dagster as dg
import pytest

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from tests.end_to_end.tiny_market import DAYS, HOURS, SYMBOL, day
from uqlob_pipeline.defs.partitions import asset_day_key
from uqlob_pipeline.lake.available_days import recorded_partitions
from uqlob_pipeline.lake.staleness import staleness_by_table
from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
from uqlob_pipeline.tracking.client import Tracking

BY_MODEL = ["predictions", "calibrated_predictions", "threshold_multiplier", "gated_evaluation", "trades", "economic_evaluation"]
FOLLOWS = ["dataset_profile", *BY_MODEL, "paper_report"]


@pytest.mark.usefixtures("undrawn")
def test_a_later_end_of_the_test_split_leaves_fits_encoder_and_heads_current(trained, profile, instance, tmp_path):
    lake, new = copy_of(trained[0], tmp_path / "lake"), day(DAYS)
    simulate_day(lake.root, SYMBOL, new.date, MarketSettings(seed=3, hours=HOURS))
    test = profile.splits.test.model_copy(update={"last": new.date})
    later = profile.model_copy(update={"splits": profile.splits.model_copy(update={"test": test})})

    def stale(chosen) -> list[str]:
        asked = staleness_by_table(lake, chosen, recorded_partitions(lake, chosen))
        return [asset for asset, reasons in asked.items() if any(reasons.values())]

    def make(*assets: str, partition: str | dg.MultiPartitionKey | None = None) -> None:
        assert tiny_market.run(lake, later, instance, *assets, partition=partition).success

    for asset in ("book_events", "window_prices", "event_features", "window_labels"):
        make(asset, partition=asset_day_key(new))
    assert stale(profile) == []  # the new day alone asks for no forecast
    assert stale(later) == FOLLOWS
    make("dataset_profile")
    for asset in BY_MODEL:
        make(asset, partition=tiny_market.model_partition())
    make("paper_report")
    assert stale(later) == []

    tracking = Tracking(lake, later)
    client, run = tracking.store().client, tracking.store().run_id(tracking.model(tiny_market.KEY))
    points = {point.step: point.value for point in client.get_metric_history(run, "predictions/test")}
    assert list(points) == [2, 3], "the figures of the former test days are kept"  # days after the training split
    found = client.get_run(run).data
    assert found.metrics["predictions/test"] == points[3] > points[2]
    assert found.tags["test.last"] == str(new.date)
