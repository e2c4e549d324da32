"""The registered models: complete by themselves, the same numbers in a new process, and a champion that never gets worse."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.end_to_end.tiny_market import KEY
from uqlob_models.checkpoints import load_model
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.metrics import CLASS_NAMES, class_of
from uqlob_models.prediction import predict_classification, predict_regression
from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows
from uqlob_pipeline.models.stages import plan_stage, read_record
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.model_registry import (
    CHAMPION,
    IN_USE,
    PROFILE_TAG,
    VALIDATION_TAG,
    current_store,
    register,
    requirements,
)
from uqlob_pipeline.tracking.training_runs import _datasets, validation_version

KINDS = {"tokens": np.int32, "continuous": np.float32, "context_displacement": np.float64}
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
print(json.dumps({"from": uqlob_models.__file__, "columns": {name: found[name].tolist() for name in found.columns}}))
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
    """Windows and context of the targets in one file, as an external caller would provide them."""
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
    """The model's output in an interpreter that has the installed packages and nothing of this checkout."""
    command = [sys.executable, "-P", "-c", SERVE, tracking.uri, name, str(instances)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_the_regression_model_gives_the_same_numbers_in_a_new_process(trained, profile, dataset, targets, instances, tmp_path):
    lake, _ = trained
    found = served(Tracking(lake, profile), "uqlob-BTC-USD-5s-regression-tiny", instances, tmp_path)
    model = load_model(read_record(lake.model("uq_regression", KEY)).best).uq_model()
    expected = predict_regression(model, dataset, targets)
    columns = {name: np.array(values) for name, values in found["columns"].items()}
    assert columns["raw_mean"] == pytest.approx(expected.mean, rel=1e-4, abs=1e-5)
    assert columns["raw_std"] == pytest.approx(expected.std, rel=1e-5)
    assert columns["raw_scale"] == pytest.approx(expected.distribution.scale, rel=1e-4)
    assert columns["raw_p_zero"] == pytest.approx(expected.distribution.zero)
    assert columns["snr"] == pytest.approx(np.abs(columns["mean"]) / columns["std"])
    published = ZeroInflatedT.of(*(columns[name] for name in ("location", "scale", "dof", "p_zero")))
    assert columns["std"] == pytest.approx(published.std())
    for level in (68, 95):
        assert np.stack([columns[f"{side}_{level}"] for side in ("lower", "upper")]) == pytest.approx(
            np.stack(published.interval(level / 100))
        )
    assert found["columns"]["class"] == class_of(expected.mean, 0.0).tolist()
    assert found["columns"]["class_name"] == [CLASS_NAMES[number] for number in found["columns"]["class"]]
    assert str(lake.mlflow) in found["from"]  # its own copy of the code, not this checkout's


def test_the_classification_model_gives_the_same_numbers_in_a_new_process(
    trained, profile, dataset, targets, instances, tmp_path
):
    lake, _ = trained
    found = served(Tracking(lake, profile), "uqlob-BTC-USD-5s-classification-tiny", instances, tmp_path)
    model = load_model(read_record(lake.model("uq_classification", KEY)).best).uq_model()
    expected = predict_classification(model, dataset, targets).probabilities
    columns = found["columns"]
    probabilities = np.stack([columns[name] for name in ("p_down", "p_up", "p_stationary")], axis=1)
    assert probabilities == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert columns["confidence"] == pytest.approx(expected.max(axis=1), rel=1e-4)
    assert columns["class"] == expected.argmax(axis=1).tolist()
    assert columns["class_name"] == [CLASS_NAMES[number] for number in columns["class"]]


@pytest.fixture(scope="module", params=["regression", "classification"])
def model(trained, profile, request):
    """A registered model, loaded as a caller would."""
    import mlflow

    tracking = Tracking(trained[0], profile)
    with current_store(tracking.uri), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        return mlflow.pyfunc.load_model(f"models:/uqlob-BTC-USD-5s-{request.param}-tiny@{IN_USE}")


def test_what_cannot_be_forecast_is_refused_with_the_reason(model, instances):
    from mlflow.exceptions import MlflowException

    def refused(name: str, value: float) -> str:
        given = {key: array.copy() for key, array in np.load(instances).items()}
        given[name][(1, *[0] * (given[name].ndim - 1))] = value
        with pytest.raises(MlflowException) as error:
            model.predict(given)
        assert error.value.error_code == "INVALID_PARAMETER_VALUE"
        return str(error.value)

    assert "continuous[1, 0, 0, 0] is nan, and 1 value(s) in all are not finite" in refused("continuous", np.nan)
    assert "context_displacement[1, 0] is inf" in refused("context_displacement", np.inf)
    assert "tokens[1, 0, 0] is 439, and 1 token(s) in all are outside 0 to 438" in refused("tokens", 439)
    assert "tokens[1, 0, 0] is -1" in refused("tokens", -1)


def test_the_input_example_is_not_all_zeros_and_can_be_forecast(model):
    example = model.input_example
    given = {name: np.asarray(example[name], dtype=dtype) for name, dtype in KINDS.items()}
    assert all(np.unique(array).size > 2 for array in given.values())
    (name,) = model.predict(given)["class_name"]
    assert name in CLASS_NAMES


def test_the_threshold_makes_small_means_stationary(model, instances):
    if "mean" not in [spec.name for spec in model.metadata.signature.outputs.inputs]:
        pytest.skip("the classification head has probabilities")
    given = dict(np.load(instances))
    mean = model.predict(given)["mean"].to_numpy()
    threshold = float(np.median(np.abs(mean)))
    found = model.predict(given, params={"threshold": threshold})
    assert found["class"].tolist() == class_of(mean, threshold).tolist()
    assert set(found["class_name"]) >= {"stationary"}


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
    assert "MLFLOW_TRACKING_URI" not in os.environ  # it would redirect every later lake of this process to this store
    assert champion_after(name, "b", 0.05) == "a"
    assert champion_after.client.get_model_version_by_alias(name, IN_USE).tags["uqlob.version"] == "b"
    assert champion_after(name, "c", 0.1) == "c"
    assert champion_after(name, "c", 0.1) == "c"
    assert len(champion_after.client.search_model_versions(f"name = '{name}'")) == 3  # the last one was registered already


def test_on_other_validation_data_the_newest_version_becomes_champion(champion_after):
    name = "champion-of-other-days"
    assert champion_after(name, "a", 0.1) == "a"
    assert champion_after(name, "b", 0.05, "later days") == "b"
    assert champion_after(name, "a", 0.1) == "b"  # registering it again does not make it newer
    assert champion_after(name, "c", 0.04, "later days") == "b"


def test_models_are_registered_with_their_profile_and_validation_version(trained, profile):
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


def test_runs_are_told_apart_by_symbol_horizon_and_head_in_their_parameters(trained, profile):
    lake, _ = trained
    store = Tracking(lake, profile).store()
    heads = {"encoder": "encoder", "uq_regression": "regression", "uq_classification": "classification"}
    for kind, head in heads.items():
        (run,) = store.search({"uqlob.kind": kind})
        assert {name: run.data.params.get(name) for name in ("symbol", "horizon_s", "head")} == {
            "symbol": "BTC-USD",
            "horizon_s": "5",
            "head": head,
        }
    (run,) = store.search({"uqlob.kind": "model"})
    assert (run.data.params["symbol"], run.data.params["horizon_s"]) == ("BTC-USD", "5")


def test_the_model_that_predictions_are_made_with_has_its_own_alias(trained, profile):
    lake, _ = trained
    store = Tracking(lake, profile).store()
    client, logged = store.client, {model.name for model in store.client.search_logged_models([store.experiment_id])}
    for head in ("regression", "classification"):
        version = client.get_model_version_by_alias(f"uqlob-BTC-USD-5s-{head}-tiny", IN_USE)
        assert version.tags["uqlob.version"] == read_record(lake.model(f"uq_{head}", KEY)).version
        assert version.name in logged  # symbol, horizon and head


def test_datasets_of_other_horizons_have_other_digests(trained, profile):
    lake, _ = trained
    plan = plan_stage(lake, profile, KEY, "uq_regression")
    ten = dataclasses.replace(plan, key=dataclasses.replace(KEY, horizon_s=10))
    digests = [{given["digest"] for given in _datasets(lake, chosen)} for chosen in (plan, ten)]
    assert [len(found) for found in digests] == [2, 2]
    assert not digests[0] & digests[1]


def test_requirements_name_no_local_build(monkeypatch):
    monkeypatch.setattr("uqlob_pipeline.tracking.model_registry.version", lambda _: "2.13.0+cpu")
    assert "torch==2.13.0" in requirements()


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
