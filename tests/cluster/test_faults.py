"""Faults of a cluster: each stage of the DAG meets one, and ends with the bytes of a run on one machine that met none.

The tests follow the DAG on one cluster with one lake, so that each needs those before it.
"""

import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import LocalRun
from tests.cluster.lake_contents import differences, objects
from tests.cluster.two_symbols import SYMBOLS, asset_days
from tests.end_to_end import tiny_market
from tests.end_to_end.held import RELEASED, held_environment
from uqlob_pipeline.devtools.loopback_cluster.cluster import MOST_SECONDS, Cluster, cluster
from uqlob_pipeline.devtools.loopback_cluster.object_server import ObjectServer
from uqlob_pipeline.devtools.loopback_cluster.servers import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NODES = ("one", "two")
RESUMED = "Resuming run"
AWAY_S = 30.0


class HeldRequest:
    """Requests to the store that wait until they are let through, or are dropped as those of a machine without power."""

    def __init__(self, server: ObjectServer, method: str, key: str) -> None:
        self._server, self._method, self._key = server, method, key
        self._arrived, self._ended = threading.Event(), threading.Event()
        server.before = self._hold

    def wait(self) -> None:
        assert self._arrived.wait(MOST_SECONDS), f"no {self._method} of {self._key} arrived"

    def drop(self) -> None:
        self._server.before = None
        self._ended.set()

    def _hold(self, environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == self._method and self._key in environ["PATH_INFO"]:
            self._arrived.set()
            self._ended.wait(MOST_SECONDS)
            raise ConnectionAbortedError("the request was dropped")


@pytest.fixture(scope="module")
def held_trainings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("held")
    (directory / RELEASED).touch()
    return directory


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, market_profile: Path, held_trainings: Path) -> Iterator[Cluster]:
    hook = {**held_environment(held_trainings), "HELD_STEP": "6"}  # a checkpoint is written at the third
    with cluster(
        tmp_path_factory.mktemp("cluster"), market_profile, tiny_market.DAYS, workers=NODES, node_environment=hook
    ) as found:
        yield found


def assert_as_on_one_machine(running: Cluster, local_run: LocalRun, *tables: str) -> None:
    found = [
        {key: content for key, content in contents.items() if key.startswith(tuple(f"{table}/" for table in tables))}
        for contents in (objects(running), local_run.files())
    ]
    assert {key.split("/")[0] for key in found[1]} == {table.split("/")[0] for table in tables}
    assert differences(*found) == {}


def messages(running: Cluster, run: str) -> list[str]:
    return [str(event.get("message")) for event in running.events(run)]


def was_resumed(running: Cluster, run: str) -> bool:
    return any(RESUMED in message for message in messages(running, run))


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
    held.wait()
    run = run_of(running, backfill, "ETH-USD")
    node = kill_node_of(running, run)
    held.drop()
    running.wait_for_success(backfill)
    assert was_resumed(running, run)
    assert_as_on_one_machine(running, local_run, "book_events", "window_prices", "data_quality")
    running.nodes.restart(node)


def test_a_node_that_is_cut_off_and_comes_back(running: Cluster, local_run: LocalRun) -> None:
    """It is stopped until its run goes on elsewhere, and then continued: two processes have the same work for a moment."""
    held = HeldRequest(running.store, "PUT", "window_prices/symbol=ETH-USD/date=2026-01-06")
    backfill = running.launch(["window_prices"], asset_days())
    held.wait()
    run = run_of(running, backfill, "ETH-USD")
    (node,) = set(running.nodes.workers_of(run).values())
    running.nodes.send(node, signal.SIGSTOP)
    resumed = partial(was_resumed, running, run)
    wait_until(resumed, "the run on another node", MOST_SECONDS)
    running.nodes.send(node, signal.SIGCONT)
    held.drop()
    running.wait_for_success(backfill)
    assert_as_on_one_machine(running, local_run, "window_prices")
    running.nodes.restart(node)


def test_two_backfills_of_the_same_days_at_once(running: Cluster, local_run: LocalRun) -> None:
    fits = [f"train|{symbol}" for symbol in SYMBOLS]
    fitted = ["token_bins", "label_thresholds", "event_features", "window_labels", "feature_scales"]
    both = [running.launch(fitted, fits) for _ in range(2)]
    for backfill in both:
        running.wait_for_success(backfill)
    assert_as_on_one_machine(running, local_run, *fitted)


def test_a_store_that_is_away_for_half_a_minute(running: Cluster, local_run: LocalRun) -> None:
    held = HeldRequest(running.store, "PUT", "event_features/symbol=BTC-USD/date=2026-01-06")
    backfill = running.launch(["event_features", "window_labels"], asset_days())
    held.wait()
    running.store.stop()
    held.drop()
    time.sleep(AWAY_S)  # the fault itself
    running.store.start()
    running.wait_for_success(backfill)
    assert_as_on_one_machine(running, local_run, "event_features", "window_labels")


def test_a_node_killed_in_mid_training_resumes_on_the_other(running: Cluster, local_run: LocalRun, held_trainings: Path) -> None:
    (held_trainings / RELEASED).unlink()
    models = [f"5s|{symbol}" for symbol in SYMBOLS]
    backfill = running.launch(["encoder"], models)

    def checkpoint_is_published() -> bool:
        puts = [request for request in running.store.requests if request.startswith("PUT") and "symbol=ETH-USD" in request]
        return any("/step-" in request and "/state.json" in request for request in puts)

    wait_until(checkpoint_is_published, "a published checkpoint", MOST_SECONDS)
    run = run_of(running, backfill, "ETH-USD")
    node = kill_node_of(running, run)
    (held_trainings / RELEASED).touch()
    running.wait_for_success(backfill)
    assert was_resumed(running, run)
    assert [message for message in messages(running, run) if "resuming from step-" in message]
    assert_as_on_one_machine(running, local_run, "models/encoder")
    running.nodes.restart(node)


def test_a_run_worker_that_is_killed(running: Cluster, local_run: LocalRun) -> None:
    held = HeldRequest(running.store, "PUT", "predictions/symbol=BTC-USD")
    models = [f"5s|{symbol}" for symbol in SYMBOLS]
    backfill = running.launch(["uq_regression", "uq_classification", "predictions", "calibrated_predictions"], models)
    held.wait()
    run = run_of(running, backfill, "BTC-USD")
    running.nodes.kill_worker_of(run)
    held.drop()
    running.wait_for_success(backfill)
    assert was_resumed(running, run)
    assert_as_on_one_machine(running, local_run, "models", "predictions", "calibrated_predictions")


def test_a_database_that_is_restarted(running: Cluster, local_run: LocalRun) -> None:
    held = HeldRequest(running.store, "PUT", "gated_evaluation/symbol=BTC-USD")
    models = [f"5s|{symbol}" for symbol in SYMBOLS]
    rest = ["threshold_multiplier", "gated_evaluation", "trades", "economic_evaluation"]
    backfill = running.launch(rest, models)
    held.wait()
    running.database.stop()
    held.drop()
    running.database.start()
    running.wait_for_success(backfill)
    assert_as_on_one_machine(running, local_run, "gated_evaluation", "trades", "economic_evaluation")


def test_after_all_faults_the_lake_is_that_of_one_machine(running: Cluster, local_run: LocalRun) -> None:
    running.uqlob("materialize", "--submit")
    assert differences(objects(running), local_run.files()) == {}
    running.uqlob("status", "--check")
