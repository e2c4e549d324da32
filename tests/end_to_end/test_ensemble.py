"""An ensemble of heads on the tiny market: members are trained one after another, resumed after a kill, and mixed."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.conftest import copy_of
from tests.end_to_end.test_registered_model import saved_instances, served
from tests.end_to_end.tiny_market import KEY, tiny_profile
from uqlob_models import metrics
from uqlob_models.checkpoints import load_members, load_model
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.prediction import predict_classification, predict_regression
from uqlob_models.training_result import TrainingInterrupted
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows
from uqlob_pipeline.models.predictions import plan_predictions, predict
from uqlob_pipeline.models.stage_training import train_stage, training_summary
from uqlob_pipeline.models.stages import HEADS, StageRecord, plan_stage, read_record, weights_version
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.origin import Origin
from uqlob_pipeline.tracking.training_runs import train_tracked

BETWEEN = "member 2 of 2: "


def with_training(profile: Profile, **changes: object) -> Profile:
    return profile.model_copy(update={"training": replace(profile.training, **changes)})


def of_two(profile: Profile) -> Profile:
    return with_training(profile, ensemble=2, mirror_predictions=True)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def two(profile) -> Profile:
    return of_two(profile)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, ingested, profile) -> Lake:
    """A lake with an encoder, trained without an ensemble."""
    lake = copy_of(ingested, tmp_path_factory.mktemp("pretrained") / "lake")
    train_stage(lake, profile, plan_stage(lake, profile, KEY, "encoder"), log=print)
    return lake


@pytest.fixture(scope="module")
def heads(tmp_path_factory, pretrained, two) -> tuple[Lake, dict[str, StageRecord], list[str]]:
    """Both heads, their records, and the lines that were logged."""
    lake, lines = copy_of(pretrained, tmp_path_factory.mktemp("heads") / "lake"), []
    records = {}
    for stage in HEADS:
        plan = plan_stage(lake, two, KEY, stage)
        records[stage], _ = train_tracked(
            Tracking(lake, two), lake, plan, Origin("run", "p", stage), fresh=False, log=lines.append
        )
    return lake, records, lines


@pytest.fixture(scope="module")
def dataset(heads, two):
    lake, _, _ = heads
    return load_windows(lake, two, gather_inputs(lake, two, KEY, ALL_SPLITS, needed_by="test"))


def comparable(record: StageRecord) -> dict:
    return {name: value for name, value in asdict(record).items() if name != "directory"}


def killed_between_members(root: str, profiles: str) -> None:
    """Trains until the second member starts, and kills its own process."""

    def log(text: str) -> None:
        if BETWEEN in text:
            os.kill(os.getpid(), signal.SIGKILL)

    lake, profile = Lake(Path(root)), of_two(tiny_profile(Path(profiles)))
    train_stage(lake, profile, plan_stage(lake, profile, KEY, "uq_regression"), log=log)


def test_a_training_killed_between_and_within_members_resumes_to_the_same_ensemble(pretrained, two, heads, tmp_path):
    lake = copy_of(pretrained, tmp_path / "lake")
    code = "import sys; from tests.end_to_end.test_ensemble import killed_between_members as run; run(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(lake.root), str(tmp_path)]
    killed = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    plan = plan_stage(lake, two, KEY, "uq_regression")
    assert read_record(plan.home) is None
    assert (plan.directory / "best" / "weights.safetensors").exists()
    assert not (plan.directory / "member-2").exists()

    steps: list[int] = []
    with pytest.raises(TrainingInterrupted, match="member-2"):
        train_stage(lake, two, plan, log=print, stop=lambda: steps.append(1) or len(steps) > 4)
    assert read_record(plan.home) is None
    lines: list[str] = []
    record = train_stage(lake, two, plan, log=lines.append)
    assert any(BETWEEN in text and "resuming from step-" in text for text in lines)
    assert not [text for text in lines if "member 1 of 2: epoch" in text]  # the first was done
    assert comparable(record) == comparable(heads[1]["uq_regression"])
    assert train_stage(lake, two, plan, log=print, stop=lambda: pytest.fail("trained again")) == record


def test_a_fresh_training_takes_no_member_of_the_previous_one_and_leaves_them_in_use(heads, two, tmp_path):
    lake = copy_of(heads[0], tmp_path / "lake")
    plan = plan_stage(lake, two, KEY, "uq_regression")
    before = read_record(plan.home)
    with pytest.raises(TrainingInterrupted):
        train_stage(lake, two, plan, fresh=True, log=print, stop=lambda: True)
    assert plan.is_unfinished
    assert not (plan.directory / "member-2").exists()
    assert read_record(plan.home) == before
    assert all((member / "weights.safetensors").exists() for member in before.members)


def test_the_first_member_equals_the_model_trained_without_an_ensemble(pretrained, profile, heads, tmp_path):
    lake = copy_of(pretrained, tmp_path / "lake")
    single = with_training(profile, mirror_predictions=True)
    record = train_stage(lake, single, plan_stage(lake, single, KEY, "uq_regression"), log=print)
    mixture = heads[1]["uq_regression"]
    first, second = (load_model(member) for member in mixture.members)
    assert record.members == [record.best]
    alone = load_model(record.best).uq_model().state_dict()
    assert all(np.array_equal(alone[name], value) for name, value in first.uq_model().state_dict().items())
    assert not np.array_equal(alone["head.projection.weight"], second.uq_model().head.projection.weight.detach())
    assert [saved.config.seed for saved in (first, second)] == [profile.training.seed, profile.training.seed + 1]
    assert (record.best_epoch, record.epochs, record.steps) == (mixture.best_epoch, mixture.epochs, mixture.steps)
    assert record.weights == weights_version([record.best])
    assert record.weights != mixture.weights


def test_the_version_changes_with_any_member(heads, two, tmp_path):
    lake = copy_of(heads[0], tmp_path / "lake")
    record = read_record(lake.model("uq_regression", KEY))
    assert record == replace(heads[1]["uq_regression"], directory=record.directory)
    assert weights_version(record.members) == record.weights
    with open(record.members[1] / "weights.safetensors", "ab") as file:
        file.write(b"!")
    assert weights_version(record.members) != record.weights


def test_the_record_has_the_metrics_of_the_mixture(heads, dataset, two):
    targets = dataset.targets("selection", two.training.head.context)
    true, y, delta = dataset.label[targets], dataset.y[targets], dataset.delta[targets]
    regression, classification = (heads[1][stage] for stage in HEADS)
    alone = [predict_regression(load_model(member).uq_model(), dataset, targets) for member in regression.members]
    mean = (alone[0].mean + alone[1].mean) / 2
    std = np.sqrt((alone[0].std ** 2 + alone[1].std ** 2) / 2 + (alone[0].mean - alone[1].mean) ** 2 / 4)
    loss = two.training.loss
    assert regression.best_metric == pytest.approx(metrics.weighted_r2(y, mean, dataset.y_ref, loss.p, loss.w_max), rel=1e-6)
    assert regression.validation["weighted_r2"] == regression.best_metric
    assert regression.validation["nlpd"] == pytest.approx(ZeroInflatedT.of(mean, std).log_score(y).mean(), rel=1e-6)
    assert regression.confusion == metrics.confusion(true, metrics.class_of(mean, delta)).tolist()
    each = [predict_classification(load_model(m).uq_model(), dataset, targets).probabilities for m in classification.members]
    predicted = ((each[0] + each[1]) / 2).argmax(axis=1)
    assert classification.best_metric == pytest.approx(metrics.macro_f1(true, predicted))
    assert classification.confusion == metrics.confusion(true, predicted).tolist()


def test_predictions_are_those_of_the_mixture(heads, dataset, two):
    lake, records, _ = heads
    table = predict(lake, two, plan_predictions(lake, two, KEY), log=print)
    targets = np.flatnonzero(np.isin(dataset.t_end, table["t"].to_numpy()))
    assert dataset.t_end[targets].tolist() == table["t"].to_pylist()
    alone = [predict_regression(load_model(member).uq_model(), dataset, targets) for member in records["uq_regression"].members]
    assert table["mu"].to_numpy() == pytest.approx((alone[0].mean + alone[1].mean) / 2, rel=1e-4, abs=1e-5)
    between = (alone[0].mean - alone[1].mean) ** 2 / 4
    assert between.max() > 0
    variance = (alone[0].std ** 2 + alone[1].std ** 2) / 2 + between
    assert table["sigma"].to_numpy() ** 2 == pytest.approx(variance, rel=1e-4)
    dropping = with_training(two, mc_dropout_passes=2)
    passes = predict(lake, dropping, plan_predictions(lake, dropping, KEY), log=print)
    assert not np.allclose(passes["mu"].to_numpy(), table["mu"].to_numpy())


def test_the_registered_models_mix_all_members_in_a_new_process(heads, dataset, two, tmp_path):
    lake, records, _ = heads
    targets = dataset.targets("test", two.training.head.context)[::40]
    instances = saved_instances(dataset, targets, two.training.head.context, tmp_path)
    regression, classification = (load_members(records[stage].members) for stage in HEADS)
    found = served(Tracking(lake, two), "uqlob-BTC-USD-5s-regression-tiny", instances, tmp_path)["columns"]
    expected = predict_regression(regression, dataset, targets)
    assert found["raw_mean"] == pytest.approx(expected.mean, rel=1e-4, abs=1e-5)
    assert found["raw_std"] == pytest.approx(expected.std, rel=1e-5)
    one = predict_regression(regression[0], dataset, targets)
    assert np.abs(one.std / expected.std - 1).max() > 1e-4  # one member alone differs
    found = served(Tracking(lake, two), "uqlob-BTC-USD-5s-classification-tiny", instances, tmp_path)["columns"]
    probabilities = np.stack([found[name] for name in ("p_down", "p_up", "p_stationary")], axis=1)
    assert probabilities == pytest.approx(
        predict_classification(classification, dataset, targets).probabilities, rel=1e-4, abs=1e-6
    )


def test_mlflow_has_the_metrics_and_files_of_each_member(heads, two):
    lake, records, lines = heads
    store = Tracking(lake, two).store()
    for stage in HEADS:
        (run,) = store.search({"uqlob.kind": stage})
        record = records[stage]
        assert run.info.status == "FINISHED"
        assert run.data.metrics[f"best/{record.metric}"] == record.best_metric
        for prefix, epochs in zip(("", "member-2/"), record.histories(), strict=True):
            logged = store.client.get_metric_history(run.info.run_id, f"{prefix}train/loss")
            assert {point.step: point.value for point in logged} == {epoch["epoch"]: epoch["train/loss"] for epoch in epochs}
            assert len(logged) == len(epochs)
        assert record.histories()[0][0]["train/loss"] != record.histories()[1][0]["train/loss"]
        files = {file.path for file in store.client.list_artifacts(run.info.run_id, "checkpoint")}
        assert {"checkpoint/weights.safetensors", "checkpoint/member-2"} <= files
        inside = {file.path for file in store.client.list_artifacts(run.info.run_id, "checkpoint/member-2")}
        assert inside == {"checkpoint/member-2/weights.safetensors", "checkpoint/member-2/config.json"}
        assert any(f"{stage} member 1 of 2: epoch 1 of 2" in text for text in lines)
        assert any(f"{stage} member 2 of 2: epoch 2 of 2" in text for text in lines)
        assert training_summary(record)["seconds"] == pytest.approx(
            sum(epoch["seconds"] for epochs in record.histories() for epoch in epochs)
        )


def test_logging_a_finished_ensemble_again_adds_no_point(heads, two):
    lake, records, _ = heads
    tracking, lines = Tracking(lake, two), []
    (run,) = tracking.store().search({"uqlob.kind": "uq_regression"})

    def points() -> list[int]:
        names = ("epoch", "member-2/epoch", "member-2/train/loss", "best/weighted_r2")
        return [len(tracking.store().client.get_metric_history(run.info.run_id, name)) for name in names]

    before = points()
    for done in (lake.root / "tracking").glob("uq_regression*.done"):
        done.unlink()
    plan = plan_stage(lake, two, KEY, "uq_regression")
    again, _ = train_tracked(tracking, lake, plan, Origin("run", "p", "uq_regression"), fresh=False, log=lines.append)
    assert again == records["uq_regression"]
    assert points() == before == [2, 2, 2, 1]
    assert not [text for text in lines if "epoch" in text]


def test_ensembles_and_the_mirror_are_settings_of_the_heads_alone(heads, pretrained, profile, two):
    mirrored = with_training(profile, mirror_predictions=True)
    versions = {
        stage: [plan_stage(pretrained, chosen, KEY, stage).data_version for chosen in (profile, mirrored, two)]
        for stage in ("encoder", *HEADS)
    }
    assert len(set(versions["encoder"])) == 1
    assert all(len(set(versions[stage])) == 3 for stage in HEADS)
    lake, records, _ = heads
    inputs = plan_predictions(lake, two, KEY).provenance.inputs
    assert {stage: inputs[stage] for stage in HEADS} == {stage: records[stage].version for stage in HEADS}


def test_an_ensemble_of_zero_members_is_rejected(profile):
    with pytest.raises(ValueError, match="ensemble\n  Input should be greater than 0"):
        with_training(profile, ensemble=0)
