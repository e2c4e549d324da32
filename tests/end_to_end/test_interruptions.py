"""Training that is cancelled or killed, as a real Dagster process of its own: it goes on, ends in the same weights, and MLflow
holds one run for it that says how it ended."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import dagster as dg
import pytest
import torch

from tests.end_to_end.conftest import copy_of
from tests.end_to_end.held import held_environment, wait_until_held
from tests.end_to_end.tiny_market import KEY, model_partition, run, tiny_profile, write_profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import why_stale
from uqlob_pipeline.models.stage_training import train_stage
from uqlob_pipeline.models.stages import plan_stage, read_record, weights_version
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.mlflow_store import ENDED_TAG
from uqlob_pipeline.tracking.origin import Origin
from uqlob_pipeline.tracking.training_runs import train_tracked

EPOCHS = 4


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> Path:
    return write_profile(tmp_path_factory.mktemp("long"), epochs=EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, ingested, settings) -> str:
    """The hash of the encoder's weights when nothing happens."""
    lake = copy_of(ingested, tmp_path_factory.mktemp("undisturbed") / "lake")
    plan = plan_stage(lake, tiny_profile(settings.parent, epochs=EPOCHS), KEY, "encoder")
    return train_stage(lake, tiny_profile(settings.parent, epochs=EPOCHS), plan, log=print).weights


def start(lake: Lake, settings: Path, instance: str = "dagster", *, held: bool = False) -> subprocess.Popen[str]:
    """`dagster asset materialize` of the encoder, in a process group of its own."""
    home = lake.root / instance
    home.mkdir(exist_ok=True)
    command = ["-m", "dagster", "asset", "materialize", "--select", "encoder", "-m", "uqlob_pipeline.definitions"]
    environment = {
        **os.environ,
        "UQLOB_PROFILE": str(settings),
        "UQLOB_LAKE": str(lake.root),
        "DAGSTER_HOME": str(home),
        **(held_environment(lake.root.parent / "held") if held else {}),
    }
    environment.pop("MLFLOW_TRACKING_URI", None)
    return subprocess.Popen(
        [sys.executable, *command, "--partition", model_partition()],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_until_training(lake: Lake, process: subprocess.Popen[str]) -> None:
    wait_until_held(lake.root.parent / "held", 1, lambda: process.poll() is None, lambda: process.stdout.read())


def encoder_runs(lake: Lake, settings: Path) -> list:
    tracking = Tracking(lake, tiny_profile(settings.parent, epochs=EPOCHS))
    return tracking.store().search({"uqlob.kind": "encoder", "uqlob.key": str(KEY)})


def test_cancelling_checkpoints_and_materialising_again_ends_in_the_same_weights(lake, settings, undisturbed):
    cancelled = start(lake, settings, held=True)
    wait_until_training(lake, cancelled)
    os.kill(cancelled.pid, signal.SIGINT)
    output, _ = cancelled.communicate(timeout=120)
    assert cancelled.returncode != 0
    assert "checkpoint saved in" in output
    assert "start it again to continue" in output
    assert read_record(lake.model("encoder", KEY)) is None
    (run,) = encoder_runs(lake, settings)
    assert run.info.status == "KILLED"
    assert "training stopped after step" in run.data.tags[ENDED_TAG]

    again = start(lake, settings)
    output, _ = again.communicate(timeout=240)
    assert again.returncode == 0, output
    assert "resuming from step-" in output
    assert read_record(lake.model("encoder", KEY)).weights == undisturbed
    (run,) = encoder_runs(lake, settings)
    assert run.info.status == "FINISHED"
    assert ENDED_TAG not in run.data.tags
    points = (
        Tracking(lake, tiny_profile(settings.parent, epochs=EPOCHS)).store().client.get_metric_history(run.info.run_id, "epoch")
    )
    assert sorted(point.step for point in points) == list(range(1, read_record(lake.model("encoder", KEY)).epochs + 1))


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_and_leaves_one_marked_run(lake, settings, undisturbed):
    killed = start(lake, settings, held=True)
    wait_until_training(lake, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert [run.info.status for run in encoder_runs(lake, settings)] == ["RUNNING"]
    again = start(lake, settings)
    output, _ = again.communicate(timeout=240)
    assert again.returncode == 0, output
    record = read_record(lake.model("encoder", KEY))
    assert record.weights == undisturbed == weights_version([record.best])
    assert [run.info.status for run in encoder_runs(lake, settings)] == ["FINISHED"]


@pytest.mark.slow
def test_two_runs_of_the_same_model_at_once_train_it_once(lake, settings, undisturbed):
    both = [start(lake, settings, instance) for instance in ("one", "other")]
    output = [process.communicate(timeout=400)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], output
    assert sum("trained already" in text for text in output) == 1
    assert read_record(lake.model("encoder", KEY)).weights == undisturbed
    assert [run.info.status for run in encoder_runs(lake, settings)] == ["FINISHED"]


def test_a_store_that_goes_away_fails_no_training_and_is_told_later(lake, profile):
    output: list[str] = []
    away = Tracking(lake, profile, uri="http://127.0.0.1:9")
    plan = plan_stage(lake, profile, KEY, "encoder")
    record, url = train_tracked(away, lake, plan, Origin("run", "p", "encoder"), fresh=False, log=output.append)
    assert url is None
    assert any("upload to MLflow" in text for text in output)
    assert read_record(lake.model("encoder", KEY)) == record
    here = Tracking(lake, profile)
    assert any(path.parent == lake.model("encoder", KEY) for path in here.pending())
    assert here.flush_pending() == 0
    (run,) = here.store().search({"uqlob.kind": "encoder"})
    assert run.info.status == "FINISHED"
    points = here.store().client.get_metric_history(run.info.run_id, "train/loss")
    assert sorted(point.step for point in points) == list(range(1, profile.training.pretraining.epochs + 1))
    assert len(run.data.params) > len(asdict(profile.training))
    artefacts = {file.path for file in here.store().client.list_artifacts(run.info.run_id, "checkpoint")}
    assert "checkpoint/weights.safetensors" in artefacts


@pytest.mark.slow
def test_a_server_that_is_killed_during_training_gets_everything_when_it_is_back(lake, profile, tmp_path):
    """A real MLflow server over HTTP, killed in the first epoch of a head and started again after the last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    stores = ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--artifacts-destination", str(tmp_path / "artifacts")]

    def serve() -> subprocess.Popen[bytes]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, *stores], cwd=tmp_path, start_new_session=True, **quiet)
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return process
            time.sleep(0.3)
        pytest.fail("the MLflow server did not start")

    server = serve()
    try:
        tracking = Tracking(lake, profile, uri=f"http://127.0.0.1:{port}")
        origin = Origin("run", "p", "encoder")
        train_tracked(tracking, lake, plan_stage(lake, profile, KEY, "encoder"), origin, fresh=False, log=print)
        assert tracking.pending() == []

        output: list[str] = []

        def log(text: str) -> None:
            output.append(text)
            if "training and" in text and server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()

        plan = plan_stage(lake, profile, KEY, "uq_regression")
        record, _ = train_tracked(tracking, lake, plan, origin, fresh=False, log=log)
        assert any("upload to MLflow" in text for text in output)
        assert record == plan.finished()
        assert len(tracking.pending()) == 1
        server = serve()
        assert tracking.flush_pending(print) == 0
        (run,) = tracking.store().search({"uqlob.kind": "uq_regression"})
        assert run.info.status == "FINISHED"
        points = tracking.store().client.get_metric_history(run.info.run_id, "epoch")
        assert sorted(point.step for point in points) == [1, 2]
        champion = tracking.store().client.get_model_version_by_alias("uqlob-BTC-USD-5s-regression-tiny", "champion")
        assert champion.tags["uqlob.version"] == record.version
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)


def stop_after(steps: int) -> Callable[[], bool]:
    """The stop hook of a training that is cut short after some steps."""
    taken = itertools.count(1)
    return lambda: next(taken) > steps


def test_fresh_trains_anew_and_the_old_model_stays_until_the_new_one_is_finished(lake, profile):
    from uqlob_models.checkpoints import load_model
    from uqlob_models.training_result import TrainingInterrupted

    plan, home = plan_stage(lake, profile, KEY, "encoder"), lake.model("encoder", KEY)
    first = train_stage(lake, profile, plan, log=print)
    for _ in range(2):  # the second one starts from the first step again
        with pytest.raises(TrainingInterrupted):
            train_stage(lake, profile, plan, fresh=True, log=print, stop=stop_after(4))
        assert read_record(home) == first
        assert why_stale(lake, profile, "encoder", KEY) == ""
        load_model(first.best, torch.device("cpu"))
    lines: list[str] = []
    again = train_stage(lake, profile, plan, log=lines.append)
    assert any("resuming from step-" in line for line in lines)
    assert (again.weights, again.version, again.training) == (first.weights, first.version, 2)
    assert read_record(home) == again
    assert [path for path in home.iterdir() if path.is_dir()] == [again.directory]
    assert train_stage(lake, profile, plan, log=print, stop=lambda: pytest.fail("trained again")) == again


def test_re_executing_a_cancelled_fresh_run_resumes_it(lake, profile, instance, monkeypatch):
    """In Dagster: the model of before stays in use, and the re-execution has the same run configuration."""
    from uqlob_pipeline.tracking import training_runs

    train, stops = training_runs.train_stage_unlocked, [lambda: False, stop_after(4), lambda: False]
    requested: list[bool] = []

    def train_until_stopped(*arguments, fresh: bool, **named):
        requested.append(fresh)
        return train(*arguments, fresh=fresh, stop=stops[len(requested) - 1], **named)

    monkeypatch.setattr(training_runs, "train_stage_unlocked", train_until_stopped)
    fresh = {"ops": {"encoder": {"config": {"fresh": True}}}}

    def materialise(**options) -> dg.ExecuteInProcessResult:
        return run(lake, profile, instance, "encoder", partition=model_partition(), **options)

    assert materialise().success
    before = read_record(lake.model("encoder", KEY))
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        materialise(run_config=fresh)
    assert read_record(lake.model("encoder", KEY)) == before
    cancelled = instance.get_runs(limit=1)[0]
    tags = {"dagster/parent_run_id": cancelled.run_id, "dagster/root_run_id": cancelled.run_id}
    assert materialise(run_config=fresh, tags=tags).success
    assert requested == [False, True, False]
    assert read_record(lake.model("encoder", KEY)).training == 2
