"""`uqlob materialize --submit`: what is requested, and what a person is told of its runs."""

import datetime as dt
import http.server
import json
import sqlite3
import threading
import time
from collections.abc import Iterator

import dagster as dg
import pytest
import typer
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.test_utils import create_run_for_test
from sqlalchemy.exc import OperationalError

from tests.conftest import day
from uqlob_pipeline.cli import materialize, submission
from uqlob_pipeline.cli.command_context import CommandContext
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


def retried(instance: dg.DagsterInstance, backfill_id: str, outcome: dg.DagsterRunStatus) -> tuple[dg.DagsterRun, dg.DagsterRun]:
    """A run that failed, and its retry, as the daemon launches it."""
    tags = {BACKFILL_TAG: backfill_id}
    asset = frozenset({dg.AssetKey("book_events")})
    first = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED, tags=tags, asset_selection=asset)
    instance.report_run_failed(first, "the node was lost")
    family = {"parent_run_id": first.run_id, "root_run_id": first.run_id}
    second = create_run_for_test(instance, status=outcome, tags=tags, asset_selection=asset, **family)
    return first, second


def test_a_run_that_was_retried_does_not_fail_the_backfill(instance: dg.DagsterInstance, requested: str) -> None:
    retried(instance, requested, dg.DagsterRunStatus.SUCCESS)
    end(instance, requested, BulkActionStatus.COMPLETED_SUCCESS)
    assert wait_for(instance, requested, lambda _: None) == 2


def test_of_a_failed_backfill_the_last_attempt_is_named(instance: dg.DagsterInstance, requested: str) -> None:
    retried(instance, requested, dg.DagsterRunStatus.SUCCESS)
    _, second = retried(instance, requested, dg.DagsterRunStatus.STARTED)
    instance.report_run_failed(second, "the disk was full")
    end(instance, requested, BulkActionStatus.COMPLETED_FAILED)
    with pytest.raises(MaterializeFailed) as failed:
        wait_for(instance, requested, lambda _: None)
    assert "the disk was full" in str(failed.value)
    assert "the node was lost" not in str(failed.value)


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


def test_whoever_stops_waiting_is_told_that_the_backfill_goes_on(
    lake: Lake,
    profile: Profile,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(submission, "wait_for", interrupt)
    monkeypatch.setattr("uqlob_pipeline.defs.instance.open_instance", lambda: instance)
    monkeypatch.setenv("UQLOB_DAGSTER_UI", "https://lob.example.org/")
    with pytest.raises(typer.Exit) as stopped:
        materialize.run(CommandContext(profile, lake, "demo"), Choice(assets=("book_events",)), submit=True)
    assert stopped.value.exit_code == 130
    last = capsys.readouterr().out.splitlines()[-1]
    (backfill,) = instance.get_backfills()
    assert f"backfill {backfill.backfill_id} goes on" in last
    assert f"https://lob.example.org/runs/b/{backfill.backfill_id}" in last
    assert "cancel" in last
    assert "resumes" not in last


class AwayDatabase:
    """The instance of a database that does not answer the first few times."""

    def __init__(self, instance: dg.DagsterInstance, times: float, wrapped: bool) -> None:
        self._instance, self._times, self._wrapped = instance, times, wrapped

    def __getattr__(self, name: str) -> object:
        return getattr(self._instance, name)

    def get_backfill(self, backfill_id: str) -> object:
        if self._times > 0:
            self._times -= 1
            lost = OperationalError("select 1", {}, sqlite3.OperationalError("server closed the connection unexpectedly"))
            if not self._wrapped:
                raise lost
            raise RuntimeError("too many retries for DB connection") from lost  # as Dagster's Postgres storage does
        return self._instance.get_backfill(backfill_id)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_database_that_is_restarted_is_waited_for(
    instance: dg.DagsterInstance, requested: str, wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "POLL_S", 0.0)
    end(instance, requested, BulkActionStatus.COMPLETED_SUCCESS)
    lines: list[str] = []
    assert wait_for(AwayDatabase(instance, 3, wrapped), requested, lines.append) == 0  # type: ignore[arg-type]
    assert [line.split(";")[0] for line in lines] == [
        "the database of the Dagster instance does not answer",
        "the database of the Dagster instance answers again",
    ]


def test_a_database_that_stays_away_ends_the_waiting_with_the_reason(
    instance: dg.DagsterInstance, requested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "POLL_S", 0.0)
    monkeypatch.setattr(submission, "DATABASE_PATIENCE_S", 0.0)
    with pytest.raises(MaterializeFailed, match=f"Backfill {requested} goes on once it is back"):
        wait_for(AwayDatabase(instance, float("inf"), False), requested, lambda _: None)  # type: ignore[arg-type]


def test_another_error_of_the_database_is_not_waited_for(instance: dg.DagsterInstance, requested: str) -> None:
    class Broken(AwayDatabase):
        def get_backfill(self, backfill_id: str) -> object:
            raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        wait_for(Broken(instance, 1, False), requested, lambda _: None)  # type: ignore[arg-type]


class Page:
    """A Dagster UI on loopback that keeps the queries that it is sent."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                page.queries.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"])
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"data": {}}')

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    page = Page()
    monkeypatch.setenv("UQLOB_DAGSTER_UI", page.url)
    monkeypatch.setattr(submission, "DAEMON_RELOAD_S", 0.0)
    thread = threading.Thread(target=page.server.serve_forever, daemon=True)
    thread.start()
    yield page
    page.server.shutdown()
    page.server.server_close()
    thread.join()


def submit(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, last: dt.date, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Request the days of a profile whose test split ends on a day; what is logged before the request."""
    test = profile.splits.test.model_copy(update={"last": last})
    planned = profile.model_copy(update={"splits": profile.splits.model_copy(update={"test": test})})
    monkeypatch.setattr(submission, "wait_for", lambda *_: 1)
    lines: list[str] = []
    submit_choice(lake, planned, Choice(assets=("book_events",)), lines.append, instance)
    assert lines.pop().startswith("requested backfill")
    return lines


def test_the_definitions_are_loaded_again_for_days_after_the_planned_ones(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submit(lake, profile, instance, day(1).date, monkeypatch) == []
    assert page.queries == []
    assert submit(lake, profile, instance, day(0).date, monkeypatch) == []
    assert len(page.queries) == 1
    assert "reloadWorkspace" in page.queries[0]


def test_a_page_that_does_not_answer_is_named_with_the_remedy(
    lake: Lake, profile: Profile, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UQLOB_DAGSTER_UI", "http://127.0.0.1:9")
    (line,) = submit(lake, profile, instance, day(0).date, monkeypatch)
    assert line.startswith(f"the Dagster UI at http://127.0.0.1:9 did not load the definitions again, so that {day(1).date} may")
    assert "UQLOB_DAGSTER_UI" in line
