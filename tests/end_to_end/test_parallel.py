"""Two symbols trained at once without a GPU, from a real terminal command: whole, on the UI's instance, and stopped together."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import psutil
import pytest

from tests.end_to_end import tiny_market
from tests.end_to_end.held import held_environment, wait_until_held
from uqlob_pipeline.cli.parallel import make_room_in_pool, run_in_parallel, trainings_at_once
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.instance import PROJECT
from uqlob_pipeline.defs.models.assets import GPU
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.models.stages import STAGES, read_record

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core trains one model at a time")
MODELS = [ModelKey(symbol, horizon) for symbol in (tiny_market.SYMBOL, "ETH-USD") for horizon in (5, 10)]


class Terminal:
    """`uqlob` with a lake, a profile of two symbols with two horizons each, and a Dagster instance of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.lake = root, Lake(root / "lake")
        profile = tiny_market.write_profile(root)
        text = profile.read_text().replace("horizons_s = [5]", "horizons_s = [5, 10]")
        text = text.replace('[training]\ndevice = "cpu"', '[training]\ndevice = "cpu"\njoint = "horizons"')
        other = '[instruments.ETH-USD]\ntick = "0.01"\nprice_precision = 2\nqty_precision = 8\n\n[splits]'
        profile.write_text(text.replace("[splits]", other))
        home = root / "dagster_home"
        home.mkdir()
        shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", home)
        kept = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        self.env = kept | {"UQLOB_PROFILE": str(profile), "UQLOB_LAKE": str(self.lake.root), "DAGSTER_HOME": str(home)}

    def start(self, command: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        with open(self.root / "output.txt", "a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "uqlob_pipeline.cli", command],
                env={**self.env, **(environment or {})},
                stdout=log,
                stderr=log,
                cwd=PROJECT,
                text=True,
            )

    def output(self) -> str:
        return (self.root / "output.txt").read_text()

    def log(self, run: dg.DagsterRun) -> list[str]:
        with dg.DagsterInstance.from_config(str(self.root / "dagster_home")) as instance:
            return [entry.user_message for entry in instance.all_logs(run.run_id)]

    def runs(self) -> list[dg.DagsterRun]:
        with dg.DagsterInstance.from_config(str(self.root / "dagster_home")) as instance:
            return list(instance.get_runs())


@needs_two_cores
def test_the_demo_trains_two_symbols_at_once_which_stop_and_go_on_together(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    held = tmp_path / "held"
    first = terminal.start("demo", held_environment(held))
    workers = wait_until_held(held, 2, lambda: first.poll() is None, terminal.output)
    first.send_signal(signal.SIGINT)
    assert first.wait(240) == 130
    assert "stopped; finished work is kept" in terminal.output()
    assert not any(psutil.pid_exists(worker) for worker in workers)
    assert not any(read_record(terminal.lake.model("encoder", key)) for key in MODELS)

    second = terminal.start("demo")
    assert second.wait(900) == 0, terminal.output()[-3000:]
    assert "resuming from step-" in terminal.output()
    assert "4 models, 2 at a time" in terminal.output()
    assert "BTC-USD 5, 10 s: done" in terminal.output()
    assert "BTC-USD and ETH-USD pooled" in terminal.output()
    assert all(read_record(terminal.lake.model(stage, key)) is not None for stage in STAGES for key in MODELS)
    assert (terminal.lake.report / "index.html").exists()
    runs = terminal.runs()
    failed = [run for run in runs if run.status != dg.DagsterRunStatus.SUCCESS]
    assert len(failed) == 2  # the two that were stopped, which Dagster calls failed unless the UI asked for it
    assert all("training stopped after step" in " ".join(terminal.log(run)) for run in failed)
    trained = [run for run in runs if run not in failed and dg.AssetKey("encoder") in (run.asset_selection or ())]
    assert len(trained) == 2  # each symbol with all its horizons

    third = terminal.start("materialize")
    assert third.wait(240) == 0
    assert "everything chosen is current" in terminal.output()


def test_one_that_fails_is_named_with_its_reason_and_the_others_are_let_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    lines: list[str] = []
    commands = {
        "wrong": ["materialize", "--lake", str(tmp_path), "--select", "nothing"],
        "right": ["model", "summary", "--profile", "paper"],
    }
    failed = run_in_parallel(commands, 2, lines.append)
    assert list(failed) == ["wrong"]
    assert "no asset is called nothing" in failed["wrong"] or "paper_report" in failed["wrong"]  # a narrow terminal breaks it
    assert any(line.startswith("right: done") for line in lines)
    assert any("268,356" in line for line in lines)


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
