"""The registered models: complete by themselves, the same numbers in a fresh process, and a champion that only improves."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.end_to_end.tiny_market import KEY
from uqlob_models.checkpoints import load_model
from uqlob_models.prediction import predict_classification, predict_regression
from uqlob_pipeline.model_inputs import ALL_SPLITS, gather_inputs, load_windows
from uqlob_pipeline.model_registry import CHAMPION, PROFILE_TAG, VALIDATION_TAG, current_store, register
from uqlob_pipeline.stages import plan_stage, read_record
from uqlob_pipeline.tracked import validation_version
from uqlob_pipeline.tracking import Tracking

SERVE = """
import json, sys
import mlflow, numpy as np
mlflow.set_tracking_uri(sys.argv[1])
assert not any(name.startswith("uqlob") for name in sys.modules)
model = mlflow.pyfunc.load_model(f"models:/{sys.argv[2]}@champion")
instances = dict(np.load(sys.argv[3]))
found = model.predict(instances)
assert not any(name.startswith("uqlob_pipeline") for name in sys.modules)
import uqlob_models
print(json.dumps({"from": uqlob_models.__file__, "columns": {name: list(map(float, found[name])) for name in found.columns}}))
"""


@pytest.fixture(scope="module")
def dataset(trained, profile):
    lake, _ = trained
    return load_windows(lake, profile, gather_inputs(lake, profile, KEY, ALL_SPLITS, needed_by="test"))


@pytest.fixture(scope="module")
def targets(dataset, profile) -> np.ndarray:
    return dataset.targets("test", profile.training.head.context)[::40]


@pytest.fixture(scope="module")
def instances(dataset, targets, profile, tmp_path_factory):
    return saved_instances(dataset, targets, profile.training.head.context, tmp_path_factory.mktemp("instances"))


def saved_instances(dataset, targets, size: int, directory):
    """Windows and context as a caller outside would gather them, in one file."""
    context = dataset.context(size).windows(targets)
    windows = np.concatenate([context, targets[:, None]], axis=1)
    tokens, continuous = dataset.read(windows.ravel())
    path = directory / "instances.npz"
    np.savez(
        path,
        tokens=tokens.view(np.uint16).astype(np.int32).reshape(*windows.shape, -1),
        continuous=continuous.astype(np.float32).reshape(*windows.shape, *continuous.shape[1:]),
        context_displacement=dataset.y[context],
    )
    return path


def served(tracking: Tracking, name: str, instances, tmp_path) -> dict:
    """In an interpreter that sees the installed packages and nothing of this checkout."""
    command = [sys.executable, "-P", "-c", SERVE, tracking.uri, name, str(instances)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_the_regression_model_gives_the_same_numbers_in_a_fresh_process(trained, profile, dataset, targets, instances, tmp_path):
    lake, _ = trained
    found = served(Tracking(lake, profile), "uqlob-BTC-USD-5s-regression-tiny", instances, tmp_path)
    model = load_model(read_record(lake.model("uq_regression", KEY)).best).uq_model()
    wanted = predict_regression(model, dataset, targets)
    columns = {name: np.array(values) for name, values in found["columns"].items()}
    assert columns["mean"] == pytest.approx(wanted.mean, rel=1e-4, abs=1e-5)
    assert columns["std"] == pytest.approx(wanted.std, rel=1e-5)
    assert columns["snr"] == pytest.approx(np.abs(wanted.mean) / wanted.std, rel=1e-4, abs=1e-5)
    assert columns["upper_95"] - columns["mean"] == pytest.approx(1.96 * wanted.std, rel=1e-3)
    assert columns["mean"] - columns["lower_68"] == pytest.approx(wanted.std, rel=1e-2)
    assert str(lake.mlflow) in found["from"]  # its own copy of the code, not this checkout's


def test_the_classification_model_gives_the_same_numbers_in_a_fresh_process(
    trained, profile, dataset, targets, instances, tmp_path
):
    lake, _ = trained
    found = served(Tracking(lake, profile), "uqlob-BTC-USD-5s-classification-tiny", instances, tmp_path)
    model = load_model(read_record(lake.model("uq_classification", KEY)).best).uq_model()
    wanted = predict_classification(model, dataset, targets).probabilities
    columns = found["columns"]
    probabilities = np.stack([columns[name] for name in ("p_down", "p_up", "p_stationary")], axis=1)
    assert probabilities == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert columns["confidence"] == pytest.approx(wanted.max(axis=1), rel=1e-4)
    assert columns["class"] == wanted.argmax(axis=1).tolist()


def test_nothing_in_the_registered_model_is_pickled_and_it_has_a_signature(trained, profile):
    import mlflow

    lake, _ = trained
    client = Tracking(lake, profile).store().client
    version = client.get_model_version_by_alias("uqlob-BTC-USD-5s-regression-tiny", CHAMPION)
    with current_store(client.tracking_uri):
        info = mlflow.models.get_model_info(version.source)
    assert [spec.name for spec in info.signature.inputs.inputs] == ["tokens", "continuous", "context_displacement"]
    assert "lower_95" in [spec.name for spec in info.signature.outputs.inputs]
    assert info.saved_input_example_info is not None
    files = [path.name for path in lake.mlflow.rglob("*") if path.is_file()]
    assert "weights.safetensors" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".pt", ".pth"))]


@pytest.fixture(scope="module")
def champion_after(trained, profile):
    """Registers a version with a validation metric on some validation data; returns the version that is champion then."""
    lake, _ = trained
    store = Tracking(lake, profile).store()
    record = read_record(lake.model("uq_regression", KEY))
    (run,) = store.search({"uqlob.kind": "uq_regression"})

    def after(name: str, version: str, value: float, validation: str = "days") -> str:
        entry = {
            "name": name,
            "objective": "regression",
            "members": [str(record.best)],
            "metric": "weighted_r2",
            "profile": "tiny",
        }
        register(store.client, run.info.run_id, {**entry, "version": version, "value": value, "validation": validation})
        return store.client.get_model_version_by_alias(name, CHAMPION).tags["uqlob.version"]

    after.client = store.client
    return after


def test_the_champion_moves_only_to_a_model_at_least_as_good(champion_after):
    name = "champion-of-test"
    assert champion_after(name, "a", 0.1) == "a"
    assert "MLFLOW_TRACKING_URI" not in os.environ  # or every later lake of this process would be told to this store
    assert champion_after(name, "b", 0.05) == "a"
    assert champion_after(name, "c", 0.1) == "c"
    assert champion_after(name, "c", 0.1) == "c"
    assert len(champion_after.client.search_model_versions(f"name = '{name}'")) == 3  # the last was known already


def test_metrics_on_other_validation_data_do_not_compare_and_the_newest_is_champion(champion_after):
    name = "champion-of-other-days"
    assert champion_after(name, "a", 0.1) == "a"
    assert champion_after(name, "b", 0.05, "later days") == "b"
    assert champion_after(name, "a", 0.1) == "b"  # told again: it is no newer for that
    assert champion_after(name, "c", 0.04, "later days") == "b"


def test_models_are_registered_by_profile_with_what_they_were_validated_on(trained, profile):
    lake, _ = trained
    client = Tracking(lake, profile).store().client
    found = client.get_model_version_by_alias("uqlob-BTC-USD-5s-regression-tiny", CHAMPION)
    plan = plan_stage(lake, profile, KEY, "uq_regression")
    assert found.tags[PROFILE_TAG] == "tiny"
    assert found.tags[VALIDATION_TAG] == validation_version(profile, plan)
    loss = dataclasses.replace(profile.training.loss, p=3)
    reweighted = profile.model_copy(update={"training": dataclasses.replace(profile.training, loss=loss)})
    assert validation_version(reweighted, plan) != found.tags[VALIDATION_TAG]
    moved = {name: "other" if name.startswith("train/") else version for name, version in plan.provenance.inputs.items()}
    trained_otherwise = dataclasses.replace(plan, provenance=dataclasses.replace(plan.provenance, inputs=moved))
    assert validation_version(profile, trained_otherwise) == found.tags[VALIDATION_TAG]


def test_mlflow_holds_every_artefact_of_the_pipeline(trained, profile):
    lake, _ = trained
    tracking = Tracking(lake, profile)
    assert tracking.pending() == []
    client = tracking.store().client

    def artefacts(**tags: str) -> set[str]:
        (run,) = tracking.store().search({f"uqlob.{name}": value for name, value in tags.items()})
        assert run.info.status == "FINISHED"
        folders, files = [""], set()
        while folders:
            for found in client.list_artifacts(run.info.run_id, folders.pop() or None):
                (folders.append if found.is_dir else files.add)(found.path)
        return files

    fits = artefacts(kind="fits", key="BTC-USD")
    assert {path.split("/")[0] for path in fits} == {"token_bins", "feature_scales", "label_thresholds"}
    assert "dataset_profile/class_proportions.png" in artefacts(kind="dataset")
    assert "report/index.html" in artefacts(kind="report")
    of_model = artefacts(kind="model")
    assert {"predictions/horizon=5.parquet", "threshold_multiplier/horizon=5.parquet"} <= of_model
    assert {"gated_evaluation/gated_evaluation/horizon=5.parquet", "figures/reliability.png"} <= of_model
    for stage in ("encoder", "uq_regression", "uq_classification"):
        assert {
            "checkpoint/weights.safetensors",
            "checkpoint/config.json",
            "figures/training_curves.png",
            "figures/confusion_matrix.png",
            "tables/parameters.csv",
        } <= artefacts(kind=stage)
    (run,) = tracking.store().search({"uqlob.kind": "uq_regression"})
    assert "test/directional_f1_top10" in run.data.metrics
    assert {"validation/weighted_r2", "train/loss", "rate/encoder", "windows_per_second"} <= set(run.data.metrics)
    assert {tag.value for given in run.inputs.dataset_inputs for tag in given.tags} == {"training", "selection"}
    assert run.data.tags["dagster.partition"]
    assert run.data.tags["dagster.url"].endswith(run.data.tags["dagster.run_id"])
