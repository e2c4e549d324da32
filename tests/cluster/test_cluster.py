"""The whole DAG on a cluster of two Ray nodes, Postgres and an S3 server, against the same DAG on one machine."""

from pathlib import Path

import pytest

from tests.cluster.conftest import LocalRun, logged_cluster
from tests.cluster.lake_contents import comparable, differences, leftovers, objects
from tests.cluster.two_symbols import SYMBOLS, asset_days
from tests.end_to_end import tiny_market
from uqlob_pipeline.lake.table_registry import ASSET_TABLES

pytestmark = pytest.mark.cluster


def test_a_backfill_from_the_ui_makes_the_lake_that_one_machine_makes(
    tmp_path: Path, market_profile: Path, local_run: LocalRun
) -> None:
    with logged_cluster(tmp_path, market_profile, tiny_market.DAYS) as running:
        backfill = running.launch([table.name for table in ASSET_TABLES], asset_days())
        runs = running.wait_for_success(backfill)
        made = objects(running)
        assert {asset["path"][0] for run in runs for asset in run["assetSelection"]} == {table.name for table in ASSET_TABLES}
        assert differences(made, local_run.files()) == {}
        assert leftovers(made, local_run.files()) == []
        assert [request for request in running.store.requests if "/.locks/" in request] == [], "locks are in Postgres"
        tables = {key.split("/")[0] for key in comparable(made)}
        assert tables >= {"raw", "book_events", "window_labels", "models", "calibrated_predictions", "gated_evaluation"}
        assert {key.split("/")[2] for key in made if key.startswith("models/encoder/")} == {f"symbol={s}" for s in SYMBOLS}
        assert "report/index.html" in made
        running.uqlob("status", "--check")
