"""A registered model of several horizons: the horizon is a parameter of prediction, and chooses weights and served state."""

import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.uqlob_models.toy_windows import config, dataset
from uqlob_models.checkpoints import save_model
from uqlob_models.model import UqModel
from uqlob_models.prediction import predict_regression
from uqlob_models.served_state import ServedState
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.tracking import pyfunc
from uqlob_pipeline.tracking.client import Tracking
from uqlob_pipeline.tracking.model_registry import IN_USE, current_store, register, registered_name

GATES = {5: ((90, 0.0),), 10: ((90, 1e9),)}  # every forecast at 5 s passes, none at 10 s
NAME = registered_name("BTC-USD", None, "regression", "toy")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[UqModel, dict[str, object]]]:
    """Two horizons with weights of their own, saved as the entry of an outbox names them."""
    found = {}
    for horizon in (5, 10):
        torch.manual_seed(horizon)
        model, place = UqModel(config(), "regression").eval(), tmp_path_factory.mktemp("model")
        save_model(place, model, "regression", config(), step=1, data_version="toy", y_ref=1.0)
        state = place / "served_state.json"
        state.write_text(ServedState(None, GATES[horizon]).to_json())
        found[horizon] = model, {"horizon_s": horizon, "members": [str(place)], "state": str(state)}
    return found


@pytest.fixture(scope="module")
def served(models: dict, tmp_path_factory: pytest.TempPathFactory, profile_of_module: Profile):
    import mlflow

    tracking = Tracking(Lake(tmp_path_factory.mktemp("lake")), profile_of_module)
    store = tracking.store()
    run = store.client.create_run(store.experiment_id)
    entry = {"name": NAME, "objective": "regression", "profile": "toy", "metric": "weighted_r2", "value": 0.1}
    entry |= {"validation": "days", "version": "a", "horizons": [part for _, part in models.values()]}
    register(store.client, run.info.run_id, entry)
    with current_store(tracking.uri), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        return mlflow.pyfunc.load_model(f"models:/{NAME}@{IN_USE}")


@pytest.fixture(scope="module")
def instances() -> tuple[dict[str, np.ndarray], np.ndarray]:
    market = dataset()
    targets = market.targets("test", 5)[:4]
    windows = np.concatenate([market.context(5).windows(targets), targets[:, None]], axis=1)
    tokens, continuous = market.read(windows.ravel())
    return {
        "tokens": tokens.astype(np.int32).reshape(*windows.shape, -1),
        "continuous": continuous.astype(np.float32).reshape(*windows.shape, *continuous.shape[1:]),
        "context_displacement": market.y[windows[:, :-1]],
    }, targets


@pytest.mark.parametrize("horizon", [5, 10])
def test_the_horizon_chooses_the_weights_and_what_was_learnt_with_them(served, models, instances, horizon: int) -> None:
    inputs, targets = instances
    found = served.predict(inputs, params={"horizon_s": horizon})
    market, model = dataset(), models[horizon][0]
    market.y_ref = 1.0
    expected = predict_regression(model, market, targets)
    np.testing.assert_allclose(found["raw_mean"], expected.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["raw_std"], expected.std, rtol=1e-4)
    assert set(found["gate"]) == ({90} if horizon == 5 else {0})


def test_without_the_parameter_the_first_horizon_answers(served, instances) -> None:
    pd.testing.assert_frame_equal(served.predict(instances[0]), served.predict(instances[0], params={"horizon_s": 5}))


def test_a_horizon_that_the_model_does_not_have_is_refused_by_name(served, instances) -> None:
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match="the parameter horizon_s is 30; the model has 5, 10 s"):
        served.predict(instances[0], params={"horizon_s": 30})


@pytest.fixture(scope="module")
def profile_of_module() -> Profile:
    from uqlob_pipeline.config.profile import load_profile

    return load_profile("demo")


def test_the_files_of_a_model_of_one_horizon_keep_their_names(tmp_path: Path) -> None:
    from uqlob_pipeline.tracking.model_registry import artifacts_of, parts_of

    found = artifacts_of(parts_of({"members": [str(tmp_path)], "state": str(tmp_path / "state.json")}))
    assert set(found) == {"member-1", "served_state"}
    assert registered_name("BTC-USD", 5, "regression", "demo") == "uqlob-BTC-USD-5s-regression-demo"


def test_loading_the_served_model_raises_no_advice_of_mlflow():
    """MLflow runs the file for each model that is logged or loaded, and sets a filter of its own around its advice."""
    with warnings.catch_warnings(record=True) as raised:
        runpy.run_path(pyfunc.__file__)
    assert [str(warning.message) for warning in raised] == []
