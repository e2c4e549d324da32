"""`uqlob materialize --submit`: what is requested, and what a person is told of its runs."""

import time

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.test_utils import create_run_for_test

from tests.conftest import day
from uqlob_pipeline.cli import submission
from uqlob_pipeline.cli.planning import Choice, MaterializeFailed
from uqlob_pipeline.cli.submission import BACKFILL_TAG, requested_keys, submit_choice, wait_for
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.jobs import request
from uqlob_pipeline.lake.layout import Lake


def test_what_is_missing_of_the_choice_is_requested(lake: Lake, profile: Profile) -> None:
    chosen = Choice(assets=("book_events", "window_prices"), symbols=("BTC-USD",), last=day(0).date)
    assert requested_keys(lake, profile, chosen) == {"book_events": [day(0)], "window_prices": [day(0)]}
    fits = requested_keys(lake, profile, Choice(assets=("token_bins",), symbols=("BTC-USD",)))
    assert fits == {"token_bins": ["BTC-USD"]}
    models = requested_keys(lake, profile, Choice(assets=("encoder",), symbols=("BTC-USD",), horizons=(5,)))
    assert [str(key) for key in models["encoder"]] == ["BTC-USD 5s"]


def test_a_forced_choice_is_requested_whole(lake: Lake, profile: Profile) -> None:
    chosen = requested_keys(lake, profile, Choice(assets=("book_events",), force=True))
    assert chosen == {"book_events": [day(0), day(1)]}


def test_every_checksum_is_not_verified_by_a_backfill(lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> None:
    with pytest.raises(MaterializeFailed, match="--submit takes no --verify all"):
        submit_choice(lake, profile, Choice(verify_all=True), print, instance)


@pytest.fixture
def requested(lake: Lake, profile: Profile, instance: dg.DagsterInstance) -> str:
    return request(instance, lake, profile, {"book_events": [day(0)]}, "one day").backfill_id


def end(instance: dg.DagsterInstance, backfill_id: str, status: BulkActionStatus) -> None:
    backfill = instance.get_backfill(backfill_id)
    assert backfill is not None
    instance.update_backfill(backfill.with_status(status).with_end_timestamp(time.time()))


def test_a_backfill_that_failed_names_the_run_and_its_reason(instance: dg.DagsterInstance, requested: str) -> None:
    run = create_run_for_test(
        instance,
        status=dg.DagsterRunStatus.STARTED,
        tags={BACKFILL_TAG: requested, "dagster/partition": "2026-01-05|BTC-USD"},
        asset_selection=frozenset({dg.AssetKey("book_events")}),
    )
    instance.report_run_failed(run, "the node was lost")
    end(instance, requested, BulkActionStatus.COMPLETED_FAILED)
    lines: list[str] = []
    with pytest.raises(MaterializeFailed, match=r"book_events: 2026-01-05\|BTC-USD: .*the node was lost"):
        wait_for(instance, requested, lines.append)
    assert lines == [f"  failure  book_events: 2026-01-05|BTC-USD (run {run.run_id[:8]})"]


def test_a_backfill_that_ended_well_counts_its_runs(instance: dg.DagsterInstance, requested: str) -> None:
    for _ in range(2):
        create_run_for_test(instance, status=dg.DagsterRunStatus.SUCCESS, tags={BACKFILL_TAG: requested})
    end(instance, requested, BulkActionStatus.COMPLETED_SUCCESS)
    assert wait_for(instance, requested, lambda _: None) == 2


def test_whoever_waits_without_a_daemon_is_told(
    instance: dg.DagsterInstance, requested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "DAEMON_PATIENCE_S", -1.0)
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        end(instance, requested, BulkActionStatus.COMPLETED_SUCCESS)

    assert wait_for(instance, requested, log) == 0
    assert len(lines) == 1
    assert "is the daemon of this instance running? Start it with dagster-daemon run" in lines[0]
