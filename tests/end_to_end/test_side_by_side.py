"""Two models trained at once without a GPU, from a real terminal command: whole, on the UI's instance, and stopped together."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import dagster as dg
import psutil
import pytest

from tests.end_to_end import tiny_market
from uqlob_pipeline.assets.models import GPU
from uqlob_pipeline.instance import PROJECT
from uqlob_pipeline.lake import Lake, ModelKey
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.side_by_side import make_room_in_pool, run_side_by_side, trainings_at_once
from uqlob_pipeline.stages import STAGES, read_record

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core trains one model at a time")
MODELS = [ModelKey(tiny_market.SYMBOL, horizon) for horizon in (5, 10)]


class Terminal:
    """`uqlob materialize` with a lake, a profile of two horizons and a Dagster instance of its own."""

    def __init__(self, root: Path, epochs: int) -> None:
        self.root, self.lake = root, Lake(root / "lake")
        profile = tiny_market.write_profile(root, epochs=epochs)
        profile.write_text(profile.read_text().replace("horizons_s = [5]", "horizons_s = [5, 10]"))
        home = root / "dagster_home"
        home.mkdir()
        shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
        kept = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        self.env = kept | {"UQLOB_PROFILE": str(profile), "UQLOB_LAKE": str(self.lake.root), "DAGSTER_HOME": str(home)}

    def start(self) -> "subprocess.Popen[str]":
        with open(self.root / "said.txt", "a") as log:
            command = [sys.executable, "-m", "uqlob_pipeline", "materialize"]
            return subprocess.Popen(command, env=self.env, stdout=log, stderr=log, cwd=PROJECT, text=True)

    def said(self) -> str:
        return (self.root / "said.txt").read_text()

    def wait_for(self, words: str, process: "subprocess.Popen[str]", seconds: float = 240) -> None:
        until = time.monotonic() + seconds
        while words not in self.said():
            assert process.poll() is None, self.said()[-2000:]
            assert time.monotonic() < until, self.said()[-2000:]
            time.sleep(0.2)

    def log(self, run: dg.DagsterRun) -> list[str]:
        with dg.DagsterInstance.from_config(str(self.root / "dagster_home")) as instance:
            return [entry.user_message for entry in instance.all_logs(run.run_id)]

    def runs(self) -> list[dg.DagsterRun]:
        with dg.DagsterInstance.from_config(str(self.root / "dagster_home")) as instance:
            return list(instance.get_runs())


@needs_two_cores
def test_models_are_trained_two_at_a_time_and_stop_and_go_on_together(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, epochs=12)
    tiny_market.simulate(terminal.lake)
    first = terminal.start()
    for key in MODELS:
        terminal.wait_for(f"{key} encoder: epoch 1 of 12", first)
    workers = psutil.Process(first.pid).children(recursive=True)
    assert len(workers) >= 2
    first.send_signal(signal.SIGINT)
    assert first.wait(90) == 130
    assert "stopped; what was made stays" in terminal.said()
    assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    assert not any(read_record(terminal.lake.model("uq_classification", key)) for key in MODELS)

    second = terminal.start()
    assert second.wait(300) == 0, terminal.said()[-3000:]
    assert "going on from step-" in terminal.said()
    assert "2 models, 2 at a time" in terminal.said()
    assert all(read_record(terminal.lake.model(stage, key)) is not None for stage in STAGES for key in MODELS)
    assert (terminal.lake.report / "index.html").exists()
    failed = [run for run in terminal.runs() if run.status != dg.DagsterRunStatus.SUCCESS]
    assert len(failed) == 2  # the two that were stopped, which Dagster calls failed unless the UI asked for it
    assert all("training stopped after step" in " ".join(terminal.log(run)) for run in failed)

    third = terminal.start()
    assert third.wait(120) == 0
    assert "everything chosen is current" in terminal.said()


def test_one_that_fails_is_named_with_its_reason_and_the_others_are_let_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    said: list[str] = []
    commands = {"wrong": ["materialize", "--lake", str(tmp_path), "--select", "nothing"], "right": ["model", "summary"]}
    failed = run_side_by_side(commands, 2, said.append)
    assert list(failed) == ["wrong"]
    assert "no asset is called nothing" in failed["wrong"] or "paper_report" in failed["wrong"]  # a narrow terminal breaks it
    assert any(line.startswith("right: done") for line in said)
    assert any("268,356" in line for line in said)


def test_a_gpu_takes_one_training_at_a_time_and_cores_take_one_each(tmp_path: Path) -> None:
    profile: Profile = tiny_market.tiny_profile(tmp_path)
    cores = len(os.sched_getaffinity(0))
    assert trainings_at_once(profile, 1) == 1
    assert trainings_at_once(profile, 2) == min(2, cores)
    with_gpu = profile.model_copy(update={"training": replace(profile.training, device="cuda")})
    assert trainings_at_once(with_gpu, 4) == 1


def test_the_pool_is_widened_for_them_and_never_narrowed() -> None:
    with dg.instance_for_test() as instance:
        make_room_in_pool(instance, 2)
        assert instance.event_log_storage.get_concurrency_info(GPU).slot_count == 2
        make_room_in_pool(instance, 1)
        assert instance.event_log_storage.get_concurrency_info(GPU).slot_count == 2
