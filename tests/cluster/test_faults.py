"""Faults of a cluster: each stage of the DAG meets one, and ends with the bytes of a run on one machine that met none.

The tests follow the DAG on one cluster with one lake, so that each needs those before it.
"""

import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import LocalRun, logged_cluster
from tests.cluster.lake_contents import differences, leftovers, objects
from tests.cluster.two_symbols import SYMBOLS, asset_days
from tests.end_to_end import tiny_market
from tests.end_to_end.held import RELEASED, held_environment
from uqlob_pipeline.devtools.backfill_queries import BACKFILL
from uqlob_pipeline.devtools.loopback_cluster.cluster import MOST_SECONDS, Cluster
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer, drop
from uqlob_pipeline.devtools.loopback_cluster.servers import NotReady
from uqlob_pipeline.lake.postgres_lock import lock_number

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NODES = ("one", "two")
RESUMED, RETRIED = "Resuming run", "; retrying in"
WORKER_FAILED = "Detected run worker status"  # Dagster's words for a run whose process is gone
NODE_DIED = "its node has died"  # in the words of Ray's page
DATABASE_AWAY = "Is the server running on that host and accepting TCP/IP connections?"
LOCKS_HELD = "select (classid::bigint << 32) | objid::bigint from pg_locks where locktype = 'advisory' and granted"
AWAY_S = 30.0


class HeldRequest:
    """Requests to the store that wait until they are let through, or are dropped as those of a machine without power."""

    def __init__(self, server: ObjectServer, method: str, key: str) -> None:
        self._server, self._method, self._key = server, method, key
        self._arrived, self._ended = threading.Event(), threading.Event()
        server.before = self._hold

    def wait(self, running: Cluster, backfill: str) -> None:
        running.wait_during(backfill, self._arrived.is_set, f"{self._method} of {self._key}")

    def drop(self) -> None:
        self._server.before = None
        self._ended.set()

    def _hold(self, environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == self._method and self._key in environ["PATH_INFO"]:
            self._arrived.set()
            self._ended.wait(MOST_SECONDS)
            drop(environ)


@pytest.fixture(scope="module")
def held_trainings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("held")
    (directory / RELEASED).touch()
    return directory


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, market_profile: Path, held_trainings: Path) -> Iterator[Cluster]:
    hook = {**held_environment(held_trainings), "HELD_STEP": "6"}  # a checkpoint is written at the third
    hook["RAY_gcs_rpc_server_reconnect_timeout_s"] = "3600"  # a node that is cut off goes on for as long
    directory = tmp_path_factory.mktemp("cluster")
    with logged_cluster(
        directory, market_profile, tiny_market.DAYS, workers=NODES, node_environment=hook, links_wanted=True
    ) as found:
        yield found


def assert_as_on_one_machine(running: Cluster, local_run: LocalRun, *tables: str) -> None:
    found = [
        {key: content for key, content in contents.items() if key.startswith(tuple(f"{table}/" for table in tables))}
        for contents in (objects(running), local_run.files())
    ]
    assert {key.split("/")[0] for key in found[1]} == {table.split("/")[0] for table in tables}
    assert differences(*found) == {}


def assert_made_once(running: Cluster, *backfills: str) -> None:
    """Every partition of a backfill is made by one successful run, and reported once.

    A run that was resumed or retried a step may report days again that it had made before.
    """
    for backfill in backfills:
        runs = {run["id"]: run for run in running.runs(backfill)}
        for table in sorted({asset["path"][0] for run in runs.values() for asset in run["assetSelection"]}):
            reported = Counter(one for one in running.materializations(table) if one[1] in runs)
            makers: dict[str, set[str]] = defaultdict(set)
            for partition, run in reported:
                if runs[run]["status"] == "SUCCESS":
                    makers[partition].add(run)
            assert makers, f"{table}: nothing was made"
            assert {partition: found for partition, found in makers.items() if len(found) != 1} == {}, table
            again = {run for (_, run), count in reported.items() if count > 1}
            assert not [run for run in again if not was_resumed(running, run) and not has_message(running, run, RETRIED)], table


def advisory_locks(running: Cluster) -> set[int]:
    """Those that are held in the database of the cluster."""
    import psycopg2

    connection = psycopg2.connect(running.database.url.replace("+psycopg2", ""))
    try:
        with connection.cursor() as cursor:
            cursor.execute(LOCKS_HELD)
            return {number for (number,) in cursor.fetchall()}
    finally:
        connection.close()


def checkpoint_is_published(running: Cluster, since: int, stage: str, symbol: str) -> bool:
    """Whether the store was given a checkpoint, by one of the requests after the first so many."""
    puts = [request for request in running.store.requests[since:] if request.startswith("PUT")]
    wanted = ("/step-", "/state.json", f"/models/{stage}", f"symbol={symbol}")
    return any(all(part in request for part in wanted) for request in puts)


def messages(running: Cluster, run: str) -> list[str]:
    return [str(event.get("message")) for event in running.events(run)]


def was_resumed(running: Cluster, run: str) -> bool:
    """Whether the page says that the run lost its process and goes on with another."""
    return any(RESUMED in message and WORKER_FAILED in message for message in messages(running, run))


def has_message(running: Cluster, run: str, *parts: str) -> bool:
    return any(all(part in message for part in parts) for message in messages(running, run))


def run_of(running: Cluster, backfill: str, partition: str) -> str:
    """The run of a backfill that makes a partition, as soon as it has begun."""
    (found,) = [
        run["id"]
        for run in running.runs(backfill)
        if run["status"] == "STARTED" and any(partition in tag["value"] for tag in run["tags"])
    ]
    return str(found)


def kill_node_of(running: Cluster, run: str) -> str:
    (node,) = set(running.nodes.workers_of(run).values())
    assert running.nodes.kill(node) > 1
    return node


def test_a_node_killed_in_mid_replay(running: Cluster, local_run: LocalRun) -> None:
    held = HeldRequest(running.store, "PUT", "book_events/symbol=ETH-USD/date=2026-01-06")
    backfill = running.launch(["book_events", "window_prices"], asset_days())
    held.wait(running, backfill)
    run = run_of(running, backfill, "ETH-USD")
    node = kill_node_of(running, run)
    held.drop()
    running.wait_for_success(backfill)
    assert was_resumed(running, run)
    assert NODE_DIED in "".join(running.nodes.job_messages(run))
    assert_made_once(running, backfill)
    assert_as_on_one_machine(running, local_run, "book_events", "window_prices", "data_quality")
    running.nodes.restart(node)


def test_a_node_that_is_suspended_and_comes_back(running: Cluster, local_run: LocalRun) -> None:
    """It is stopped until its run goes on elsewhere, and then continued: two processes have the same work for a moment."""
    held = HeldRequest(running.store, "PUT", "window_prices/symbol=ETH-USD/date=2026-01-06")
    backfill = running.launch(["window_prices"], asset_days())
    held.wait(running, backfill)
    run = run_of(running, backfill, "ETH-USD")
    (node,) = set(running.nodes.workers_of(run).values())
    running.nodes.send(node, signal.SIGSTOP)
    running.wait_during(backfill, partial(was_resumed, running, run), "the run on another node")
    running.nodes.send(node, signal.SIGCONT)
    held.drop()
    running.wait_for_success(backfill)
    assert_made_once(running, backfill)
    assert_as_on_one_machine(running, local_run, "window_prices")
    running.nodes.restart(node)


def test_two_backfills_of_the_same_days_at_once(running: Cluster, local_run: LocalRun) -> None:
    fits = [f"train|{symbol}" for symbol in SYMBOLS]
    fitted = ["token_bins", "label_thresholds", "event_features", "window_labels", "feature_scales"]
    both = [running.launch(fitted, fits) for _ in range(2)]
    for backfill in both:
        running.wait_for_success(backfill)
    assert_made_once(running, *both)
    assert_as_on_one_machine(running, local_run, *fitted)


def test_a_store_that_is_away_for_half_a_minute(running: Cluster, local_run: LocalRun) -> None:
    held = HeldRequest(running.store, "PUT", "event_features/symbol=BTC-USD/date=2026-01-06")
    backfill = running.launch(["event_features"], asset_days())
    held.wait(running, backfill)
    running.store.stop()
    held.drop()
    time.sleep(AWAY_S)  # the fault itself
    running.store.start()
    runs = running.wait_for_success(backfill)
    assert not any(was_resumed(running, run["id"]) for run in runs)  # the process of a run goes on
    assert_made_once(running, backfill)
    assert_as_on_one_machine(running, local_run, "event_features")


def test_a_store_that_is_away_for_longer_than_a_request_is_tried(running: Cluster, local_run: LocalRun) -> None:
    """Until the page says what is waited for."""
    held = HeldRequest(running.store, "PUT", "window_labels/symbol=BTC-USD/date=2026-01-06")
    backfill = running.launch(["window_labels"], asset_days())
    held.wait(running, backfill)
    run = run_of(running, backfill, "BTC-USD")
    running.store.stop()
    held.drop()
    parts = (running.url, "window_labels/symbol=BTC-USD/date=2026-01-06")
    running.wait_during(backfill, partial(has_message, running, run, *parts), "a message about the store")
    running.store.start()
    running.wait_for_success(backfill)
    assert_made_once(running, backfill)
    assert_as_on_one_machine(running, local_run, "window_labels")


def test_a_node_killed_in_mid_training_resumes_on_the_other(running: Cluster, local_run: LocalRun, held_trainings: Path) -> None:
    (held_trainings / RELEASED).unlink()
    models = [f"5s|{symbol}" for symbol in SYMBOLS]
    since = len(running.store.requests)
    backfill = running.launch(["encoder"], models)

    published = partial(checkpoint_is_published, running, since, "encoder", "ETH-USD")
    running.wait_during(backfill, published, "a published checkpoint")
    assert lock_number(f"{running.url} models/encoder/symbol=ETH-USD/horizon=5") in advisory_locks(running)
    run = run_of(running, backfill, "ETH-USD")
    node = kill_node_of(running, run)
    (held_trainings / RELEASED).touch()
    running.wait_for_success(backfill)
    assert was_resumed(running, run)
    assert has_message(running, run, "resuming from step-")
    assert_made_once(running, backfill)
    assert_as_on_one_machine(running, local_run, "models/encoder")
    running.nodes.restart(node)


def test_a_node_whose_link_is_cut_in_mid_training(running: Cluster, local_run: LocalRun, held_trainings: Path) -> None:
    """It goes on training, and nobody hears of it, until another node has its lock; then both train the same model at once.

    One model alone is trained: the other node must be free to take it over.
    """
    links = running.links
    if links is None:
        pytest.skip(running.why_no_links)
    (held_trainings / RELEASED).unlink()
    since = len(running.store.requests)
    backfill = running.launch(["uq_regression", "uq_classification"], ["5s|ETH-USD"])
    published = partial(checkpoint_is_published, running, since, "uq_", "ETH-USD")
    running.wait_during(backfill, published, "a published checkpoint")
    run = run_of(running, backfill, "ETH-USD")
    old = running.nodes.workers_of(run)
    (node,) = set(old.values())
    links.cut(node)
    running.wait_during(backfill, partial(was_resumed, running, run), "the run on another node")
    running.wait_during(backfill, partial(has_message, running, run, "resuming from step-"), "the training on another node")
    assert set(running.nodes.workers_of(run).values()) == set(NODES), "the old node trains no more"
    links.mend(node)
    (held_trainings / RELEASED).touch()
    running.wait_for_success(backfill)
    running.wait_until(lambda: not old.keys() & running.nodes.workers_of(run).keys(), "the end of the old process")
    assert NODE_DIED in "".join(running.nodes.job_messages(run))
    assert_made_once(running, backfill)
    heads = [f"models/{stage}/symbol=ETH-USD" for stage in ("uq_regression", "uq_classification")]
    assert_as_on_one_machine(running, local_run, *heads)
    running.nodes.restart(node)


def test_a_run_worker_that_is_killed(running: Cluster, local_run: LocalRun) -> None:
    held = HeldRequest(running.store, "PUT", "predictions/symbol=BTC-USD")
    models = [f"5s|{symbol}" for symbol in SYMBOLS]
    backfill = running.launch(["uq_regression", "uq_classification", "predictions", "calibrated_predictions"], models)
    held.wait(running, backfill)
    run = run_of(running, backfill, "BTC-USD")
    running.nodes.kill_worker_of(run)
    held.drop()
    running.wait_for_success(backfill)
    assert was_resumed(running, run)
    assert_made_once(running, backfill)
    assert_as_on_one_machine(running, local_run, "models", "predictions", "calibrated_predictions")


def page_error(running: Cluster, backfill: str) -> str:
    """What the page shows in place of a backfill; empty where it shows the backfill."""
    try:
        running.graphql(BACKFILL, id=backfill)
    except (NotReady, httpx.HTTPError) as error:
        return str(error)
    return ""


def test_a_database_that_is_restarted(running: Cluster, local_run: LocalRun) -> None:
    held = HeldRequest(running.store, "PUT", "gated_evaluation/symbol=BTC-USD")
    models = [f"5s|{symbol}" for symbol in SYMBOLS]
    rest = ["threshold_multiplier", "gated_evaluation", "trades", "economic_evaluation"]
    backfill = running.launch(rest, models)
    held.wait(running, backfill)
    running.database.stop()
    held.drop()
    try:
        running.wait_until(lambda: DATABASE_AWAY in page_error(running, backfill), "a message about the database")
    finally:
        running.database.start()
    running.wait_for_success(backfill)
    assert_made_once(running, backfill)
    assert_as_on_one_machine(running, local_run, "gated_evaluation", "trades", "economic_evaluation")


def test_after_all_faults_the_lake_is_that_of_one_machine(running: Cluster, local_run: LocalRun) -> None:
    running.uqlob("materialize", "--submit")
    made, expected = objects(running), local_run.files()
    assert differences(made, expected) == {}
    assert leftovers(made, expected) == []
    assert unfinished_uploads(running) == 0
    assert [request for request in running.store.requests if "/.locks/" in request] == [], "locks are in Postgres"
    running.uqlob("status", "--check")


def unfinished_uploads(running: Cluster) -> int:
    bucket = running.url.removeprefix("s3://").partition("/")[0]
    return httpx.get(f"{running.store.url}/{bucket}?uploads", timeout=60).raise_for_status().text.count("<UploadId>")
