"""`training.joint = "horizons"` on a real Dagster instance: one training for two horizons, and everything after it as before."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
import torch

from tests.end_to_end import tiny_market
from tests.end_to_end.conftest import copy_of
from tests.end_to_end.tiny_market import SYMBOL
from tests.undrawn_figures import undrawn_figures
from uqlob_models.checkpoints import load_model
from uqlob_models.joint_training import load_joint
from uqlob_models.training_result import TrainingInterrupted
from uqlob_pipeline.cli.execution import materialize_choice
from uqlob_pipeline.cli.planning import Choice, by_process, planned_runs, runs_for, table_groups
from uqlob_pipeline.config.profile import Profile, load_profile
from uqlob_pipeline.defs.build_defs import build_defs
from uqlob_pipeline.defs.partitions import model_partition_key
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.staleness import version_on_disk, why_stale
from uqlob_pipeline.models import joint_stage_training
from uqlob_pipeline.models.joint_stage_training import train_joint_unlocked
from uqlob_pipeline.models.joint_stages import plan_joint
from uqlob_pipeline.models.serving import served_instances
from uqlob_pipeline.models.stages import STAGES, Stage, StageRecord, read_record
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.joint_runs import train_joint_tracked
from uqlob_pipeline.tracking.model_registry import IN_USE, current_store, registered_name
from uqlob_pipeline.tracking.origin import Origin

FIVE, TEN = KEYS = [ModelKey(SYMBOL, horizon) for horizon in (5, 10)]
HEADS = ("uq_regression", "uq_classification")
ORIGIN = Origin("run", "partition", "uq_regression")


def joint_profile(directory: Path, **changes: str) -> Profile:
    """The tiny profile with two horizons, trained together; `changes` replace lines by others."""
    text = tiny_market.write_profile(directory).read_text().replace("horizons_s = [5]", "horizons_s = [5, 10]")
    text = text.replace('[training]\ndevice = "cpu"', '[training]\ndevice = "cpu"\njoint = "horizons"')
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    path = directory / f"joint-{len(list(directory.glob('joint-*')))}.toml"
    path.write_text(text)
    return load_profile(str(path))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return joint_profile(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory, profile: Profile, instance: dg.DagsterInstance) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("ingested"))
    tiny_market.simulate(lake)
    tiny_market.ingest(lake, profile, instance)
    return lake


@dataclass(frozen=True)
class Made:
    """What the terminal made, and its Dagster instance."""

    lake: Lake
    instance: dg.DagsterInstance
    runs: int

    @property
    def training(self) -> dg.DagsterRun:
        """The only run that trained."""
        (found,) = [run for run in self.instance.get_runs() if dg.AssetKey("encoder") in (run.asset_selection or ())]
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, ingested: Lake, profile: Profile) -> Iterator[Made]:
    """Everything from the models to the report, from the terminal, which requests the training for 5 s alone."""
    lake = copy_of(ingested, tmp_path_factory.mktemp("trained") / "lake")
    with dg.DagsterInstance.ephemeral() as instance:
        with undrawn_figures():
            runs = materialize_choice(build_defs(profile, lake), lake, profile, Choice(), print, instance)
        yield Made(lake, instance, runs)


@pytest.fixture
def trained(made: Made) -> Lake:
    return made.lake


def records(lake: Lake, *stages: Stage) -> dict[tuple[str, ModelKey], StageRecord]:
    found = {(stage, key): read_record(lake.model(stage, key)) for stage in stages or STAGES for key in KEYS}
    return {name: record for name, record in found.items() if record is not None}


def contents(lake: Lake) -> dict[str, bytes]:
    """Every published file of the models."""
    paths = [*lake.root.glob("models/uq_*/*/*/model.json"), *lake.root.glob("models/uq_*/*/*/*/served_state.json")]
    return {str(path.relative_to(lake.root)): path.read_bytes() for path in paths}


def test_one_horizon_brings_every_other_with_its_own_metadata_and_version(made):
    instance, training = made.instance, made.training
    assert training.status is dg.DagsterRunStatus.SUCCESS
    assert training.tags["dagster/partition"] == str(model_partition_key(FIVE))
    found = records(made.lake)
    assert set(found) == {(stage, key) for stage in STAGES for key in KEYS}
    for (stage, key), record in found.items():
        event = instance.get_latest_data_version_record(dg.AssetKey(stage), partition_key=model_partition_key(key))
        shown = event.asset_materialization
        assert event.run_id == training.run_id
        assert shown.tags["dagster/data_version"] == record.version
        assert shown.metadata["trained together"].value == "5 s, 10 s"
        assert shown.metadata["weights"].value == str(record.best)
    assert len({record.version for record in found.values()}) == len(found)
    logged = [entry.user_message for entry in instance.all_logs(training.run_id)]
    assert any("encoder is trained together with encoder 10s: these come with it" in line for line in logged)


def test_the_other_horizons_tell_dagster_the_same_inputs_as_the_requested_one(made):
    def tags(key: ModelKey) -> set[str]:
        found = made.instance.get_latest_data_version_record(dg.AssetKey("uq_regression"), partition_key=model_partition_key(key))
        return {tag for tag in found.asset_materialization.tags if "input" in tag}

    assert tags(TEN) == tags(FIVE) != set()


def test_each_model_is_the_joint_model_at_its_horizon(trained, profile):
    lake = trained
    plan = plan_joint(lake, profile, SYMBOL, "uq_regression")
    joint = load_joint(plan.directory_of(1) / "best")
    for (stage, key), record in records(lake, *HEADS).items():
        saved = load_model(record.best)
        expected = joint.at(key.horizon_s, saved.y_ref, stage.removeprefix("uq_"))
        assert all(torch.equal(value, expected.state_dict()[name]) for name, value in saved.model.state_dict().items())


def test_what_reads_the_models_does_not_ask_how_they_were_trained(trained, profile):
    lake = trained
    for key in KEYS:
        assert not any(why_stale(lake, profile, table, key) for table in tiny_market.BY_MODEL)
    runs = Tracking(lake, profile).store().search({"uqlob.kind": "joint_heads"})
    assert [found.info.run_name for found in runs] == [f"{SYMBOL} joint heads"]
    assert {"5s/regression/test/nlpd", "10s/classification/test/macro_f1"} & set(runs[0].data.metrics)
    kinds = [head.removeprefix("uq_") for head in HEADS]
    assert {name for name in runs[0].data.tags if name.startswith("uqlob.registered_model")} == {
        *(f"uqlob.registered_model.{key.horizon_s}s.{kind}" for key in KEYS for kind in kinds),
        *(f"uqlob.registered_model.{kind}" for kind in kinds),
    }


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_one_registered_model_forecasts_every_horizon_as_the_models_of_the_horizons_do(trained, profile, kind):
    import mlflow
    from mlflow.exceptions import MlflowException

    lake = trained
    tracking = Tracking(lake, profile)

    def loaded(horizon: int | None) -> mlflow.pyfunc.PyFuncModel:
        with current_store(tracking.uri), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path])
            return mlflow.pyfunc.load_model(f"models:/{registered_name(SYMBOL, horizon, kind, profile.name)}@{IN_USE}")

    every = loaded(None)
    answers = []
    for key in KEYS:
        instances = served_instances(lake, profile, key, tiny_market.day(tiny_market.DAYS - 1), last=3)
        found = every.predict(instances, params={"horizon_s": key.horizon_s})
        pd.testing.assert_frame_equal(found, loaded(key.horizon_s).predict(instances))
        answers.append(found)
    first = served_instances(lake, profile, FIVE, tiny_market.day(tiny_market.DAYS - 1), last=3)
    pd.testing.assert_frame_equal(every.predict(first), answers[0])  # without the parameter, the first horizon
    with pytest.raises(MlflowException, match="the parameter horizon_s is 30; the model has 5, 10 s"):
        every.predict(first, params={"horizon_s": 30})


def stop_after(steps: int) -> Callable[[], bool]:
    count = iter(range(1000))
    return lambda: next(count) >= steps


def test_stopped_or_killed_anywhere_it_ends_in_the_same_bytes(trained, profile, tmp_path, monkeypatch):
    undisturbed = contents(trained)
    lake = copy_of(trained, tmp_path / "lake")
    for stage in (*HEADS, "joint_heads"):
        shutil.rmtree(lake.root / "models" / stage)
    with pytest.raises(TrainingInterrupted):
        train_joint_unlocked(lake, profile, plan_joint(lake, profile, SYMBOL, "uq_regression"), log=print, stop=stop_after(4))
    assert not records(lake, *HEADS)

    publish = joint_stage_training.publish
    published: list[StageRecord] = []

    def killed_after_two(record: StageRecord) -> None:
        if len(published) == 2:
            raise KeyboardInterrupt
        published.append(record)
        publish(record)

    lines: list[str] = []
    interrupted = plan_joint(lake, profile, SYMBOL, "uq_regression")
    with monkeypatch.context() as patch:
        patch.setattr(joint_stage_training, "publish", killed_after_two)
        with pytest.raises(KeyboardInterrupt):
            train_joint_unlocked(lake, profile, interrupted, log=lines.append)
    assert any("resuming from step-" in line for line in lines)
    plan = plan_joint(lake, profile, SYMBOL, "uq_classification")
    assert plan.finished() is None
    assert plan.is_unfinished
    train_joint_unlocked(lake, profile, plan, log=print)
    assert contents(lake) == undisturbed
    assert not plan_joint(lake, profile, SYMBOL, "uq_classification").is_unfinished


def test_a_fresh_training_replaces_every_horizon_and_has_its_own_run(trained, profile, tmp_path):
    lake = copy_of(trained, tmp_path / "lake")
    before = records(lake, *HEADS)
    tracking = Tracking(lake, profile)
    train_joint_tracked(tracking, lake, plan_joint(lake, profile, SYMBOL, "uq_regression"), ORIGIN, fresh=True, log=print)
    after = records(lake, *HEADS)
    assert {record.training for record in after.values()} == {2}
    assert {name: record.weights for name, record in after.items()} == {name: record.weights for name, record in before.items()}
    names = {found.info.run_name for found in tracking.store().search({"uqlob.kind": "joint_heads"})}
    assert names == {f"{SYMBOL} joint heads (2)"} or names == {f"{SYMBOL} joint heads", f"{SYMBOL} joint heads (2)"}
    lines: list[str] = []
    again = plan_joint(lake, profile, SYMBOL, "uq_classification")
    train_joint_tracked(tracking, lake, again, ORIGIN, fresh=False, log=lines.append)
    assert any("trained already" in line for line in lines)


def stale(lake: Lake, profile: Profile) -> set[tuple[str, int]]:
    return {(stage, key.horizon_s) for stage in STAGES for key in KEYS if why_stale(lake, profile, stage, key)}


def test_a_changed_setting_makes_every_horizon_stale_that_it_changes(trained, profile, tmp_path):
    lake = trained
    heads = {(stage, key.horizon_s) for stage in HEADS for key in KEYS}
    every = {(stage, key.horizon_s) for stage in STAGES for key in KEYS}
    assert stale(lake, profile) == set()
    section = "[training.{}]\nepochs = 2"
    regression = {"epochs": (section.format("regression"), section.format("regression").replace("2", "3"))}
    classification = {"epochs": (section.format("classification"), section.format("classification").replace("2", "3"))}
    assert stale(lake, joint_profile(tmp_path, **regression)) == heads
    assert stale(lake, joint_profile(tmp_path, **classification)) == set()  # a joint fine-tuning takes those of regression
    assert stale(lake, joint_profile(tmp_path, seed=("[training]\n", "[training]\nseed = 7\n"))) == every
    assert stale(lake, joint_profile(tmp_path, joint=('joint = "horizons"', 'joint = "none"'))) == every
    alone = joint_profile(tmp_path, horizons=("[evaluation]\nhorizons_s = [5, 10]", "[evaluation]\nhorizons_s = [5]"))
    assert {name for name in stale(lake, alone) if name[1] == 5} == {(stage, 5) for stage in STAGES}


def test_settings_of_separate_training_have_the_version_they_had(tmp_path):
    profile = load_profile(str(tiny_market.write_profile(tmp_path)))
    from uqlob_pipeline.lake.table_registry import REGISTRY

    for stage in STAGES:
        table = REGISTRY[stage]
        assert table.settings_version(profile, FIVE) == profile.settings_version(*table.settings)


def test_one_run_per_symbol_is_planned_and_one_process(ingested, profile):
    (group,) = [group for group in table_groups(Choice()) if group[0].name == "encoder"]
    runs = runs_for(group, ingested, profile, Choice())
    assert len(runs) == 2
    assert [len(together) for together in by_process(runs, profile)] == [2]
    first, _, of = next(planned_runs(group, ingested, profile, Choice()))
    assert of == 1
    assert first.tables == list(STAGES)
    separate = profile.model_copy(update={"training": replace(profile.training, joint="none")})
    assert [len(together) for together in by_process(runs, separate)] == [1, 1]
    assert first.title == f"{', '.join(STAGES)}: {SYMBOL} 5s (with 10 s, which are trained together with it)"


def test_the_terminal_makes_everything_and_then_finds_it_current(made, profile):
    lake, instance, lines = made.lake, made.instance, list[str]()
    assert made.runs > 3
    assert (lake.report / "index.html").exists()
    shown = instance.get_latest_data_version_record(dg.AssetKey("encoder"), partition_key=model_partition_key(TEN))
    assert shown.asset_materialization.tags["dagster/data_version"] == version_on_disk(lake, "encoder", TEN)
    assert materialize_choice(build_defs(profile, lake), lake, profile, Choice(), lines.append, instance) == 0
    history = json.loads((read_record(lake.model("uq_regression", TEN)).directory / "history.json").read_text())
    assert "validation/nlpd" in history["epochs"][-1]
