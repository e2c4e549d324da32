"""Fine-tuned models in MLflow's registry: logged from code and safetensors, one version a training, `champion` the one to use."""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

SERVED = Path(__file__).parent / "pyfunc.py"
CHAMPION = "champion"
REQUIREMENTS = ("mlflow", "numpy", "pandas", "pyarrow", "safetensors", "scipy", "torch")
VERSION_TAG, METRIC_TAG = "uqlob.version", "uqlob.validation_metric"
PROFILE_TAG, VALIDATION_TAG = "uqlob.profile", "uqlob.validation_data"


def registered_name(symbol: str, horizon_s: int, head: str, profile: str) -> str:
    """With the profile in it: a tracking server may be shared, and a simulated market's model is no rival of a real one's."""
    return f"uqlob-{symbol}-{horizon_s}s-{head}-{profile}"


def register(client: Any, run_id: str, entry: dict[str, Any]) -> str:
    """Log and register the weights of `entry` unless this very training is registered already; returns the version.

    `champion` moves to it if its validation metric is at least that of the champion, where both were measured on the same
    validation data. Where they were not, their metrics do not compare, and the one registered last is the champion.
    """
    name = entry["name"]
    known = {found.tags.get(VERSION_TAG): str(found.version) for found in client.search_model_versions(f"name = '{name}'")}
    number = known.get(entry["version"]) or _log(client, run_id, entry)
    _crown(client, name, number, float(entry["value"]), entry["validation"])
    return number


def _log(client: Any, run_id: str, entry: dict[str, Any]) -> str:
    import mlflow

    import uqlob_models

    members = [Path(member) for member in entry["members"]]
    config = json.loads((members[0] / "config.json").read_text())["config"]
    weights = {f"member-{number}": str(member / "weights.safetensors") for number, member in enumerate(members, 1)}
    # Loading the model once more to list the environment variables it reads costs seconds and finds none.
    os.environ.setdefault("MLFLOW_RECORD_ENV_VARS_IN_MODEL_LOGGING", "false")
    tags = {VERSION_TAG: entry["version"], METRIC_TAG: repr(float(entry["value"])), "uqlob.metric": entry["metric"]}
    tags |= {PROFILE_TAG: entry["profile"], VALIDATION_TAG: entry["validation"]}
    # MLflow talks to the terminal about type hints (the signature says more) and about each version. What fails raises.
    with contextlib.redirect_stderr(io.StringIO()), current_store(client.tracking_uri):
        with mlflow.start_run(run_id=run_id, log_system_metrics=False):
            logged = mlflow.pyfunc.log_model(
                name=entry["objective"],
                python_model=str(SERVED),
                artifacts=weights,  # files of the same name: MLflow gives each a directory of its own
                code_paths=[str(Path(uqlob_models.__file__ or "").parent)],
                signature=signature(config, entry["objective"]),
                input_example=input_example(config),
                pip_requirements=[f"{package}=={version(package)}" for package in REQUIREMENTS],
                metadata={"uqlob.version": entry["version"], "uqlob.name": entry["name"]},
            )
        registered = mlflow.register_model(logged.model_uri, entry["name"], tags=tags)
    return str(registered.version)


@contextlib.contextmanager
def current_store(uri: str) -> Iterator[None]:
    """MLflow's fluent API speaks to the store of `uri` within the block, and to whichever it did before after it.

    `set_tracking_uri` also sets MLFLOW_TRACKING_URI: left there, it would send every later lake of the process to this store.
    """
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # None unsets both


def _crown(client: Any, name: str, number: str, value: float, validation: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        champion = client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException:
        champion = None
    if champion is None:
        better = True
    elif champion.tags.get(VALIDATION_TAG) == validation:
        better = value >= float(champion.tags[METRIC_TAG])
    else:
        better = int(number) > int(champion.version)
    if better:
        client.set_registered_model_alias(name, CHAMPION, number)


def signature(config: dict[str, Any], objective: str) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    shapes = {name: ((-1, *array.shape[1:]), array.dtype) for name, array in input_example(config).items()}
    inputs = Schema([TensorSpec(np.dtype(dtype), shape, name) for name, (shape, dtype) in shapes.items()])
    doubles = {
        "regression": ("mean", "std", "lower_68", "upper_68", "lower_95", "upper_95", "snr"),
        "classification": ("p_down", "p_up", "p_stationary", "confidence"),
    }[objective]
    columns = [ColSpec(DataType.double, name) for name in doubles]
    if objective == "classification":
        columns.append(ColSpec(DataType.long, "class"))
    return ModelSignature(inputs=inputs, outputs=Schema(columns))


def input_example(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """One instance: C context windows and the target, their events at rest, and C displacements in ticks."""
    from uqlob_models.config import CONTINUOUS_FEATURES

    context, length = config["head"]["context"], config["encoder"]["window_length"]
    return {
        "tokens": np.zeros((1, context + 1, length), dtype=np.int32),
        "continuous": np.zeros((1, context + 1, len(CONTINUOUS_FEATURES), length), dtype=np.float32),
        "context_displacement": np.zeros((1, context), dtype=np.float64),
    }
