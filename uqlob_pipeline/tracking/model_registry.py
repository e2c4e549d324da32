"""Fine-tuned models in MLflow's registry: code and safetensors, one version per training.

The alias `champion` is on the best version, `in_use` on the one in the lake, with which predictions and report are made.

MLflow is imported inside functions: the code server imports this module and must not load it.
"""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PYFUNC = Path(__file__).parent / "pyfunc.py"
CHAMPION, IN_USE = "champion", "in_use"
REQUIREMENTS = ("mlflow", "numpy", "pandas", "pyarrow", "safetensors", "scipy", "torch")
VERSION_TAG, METRIC_TAG = "uqlob.version", "uqlob.validation_metric"
DISTRIBUTION = ("p_zero", "location", "scale", "dof")
INTERVALS = ("lower_68", "upper_68", "lower_95", "upper_95")
DOUBLES = {
    "regression": (
        *("mean", "std", *INTERVALS, "snr", *DISTRIBUTION),
        *(f"raw_{name}" for name in ("mean", "std", *DISTRIBUTION)),
    ),
    "classification": ("p_down", "p_up", "p_stationary", "confidence"),
}
PROFILE_TAG, VALIDATION_TAG = "uqlob.profile", "uqlob.validation_data"


def registered_name(symbol: str, horizon_s: int | None, head: str, profile: str) -> str:
    """Includes the profile: models of a simulated and of a real market on one server must not share a champion.

    Without a horizon: the model of all horizons that were trained together.
    """
    horizon = "" if horizon_s is None else f"{horizon_s}s-"
    return f"uqlob-{symbol}-{horizon}{head}-{profile}"


def register(client: Any, run_id: str, entry: dict[str, Any]) -> str:
    """Log and register the weights of `entry` unless this training is registered already; returns the version.

    It gets the alias `in_use`. `champion` moves to it if its validation metric is at least the champion's on the same
    validation data. On other validation data the metrics are not comparable, and the version registered last becomes champion.
    """
    name = entry["name"]
    known = {found.tags.get(VERSION_TAG): str(found.version) for found in client.search_model_versions(f"name = '{name}'")}
    number = known.get(entry["version"]) or _log_model(client, run_id, entry)
    client.set_registered_model_alias(name, IN_USE, number)  # entries of a training that was replaced do not get here
    _update_champion_alias(client, name, number, float(entry["value"]), entry["validation"])
    return number


def _log_model(client: Any, run_id: str, entry: dict[str, Any]) -> str:
    import mlflow

    import uqlob_models

    parts = parts_of(entry)
    config = json.loads((Path(parts[0]["members"][0]) / "config.json").read_text())["config"]
    horizons = [int(part["horizon_s"]) for part in parts if "horizon_s" in part]
    # Recording them would load the model once more, which takes seconds; it reads no environment variable.
    os.environ.setdefault("MLFLOW_RECORD_ENV_VARS_IN_MODEL_LOGGING", "false")
    tags = {VERSION_TAG: entry["version"], METRIC_TAG: repr(float(entry["value"])), "uqlob.metric": entry["metric"]}
    tags |= {PROFILE_TAG: entry["profile"], VALIDATION_TAG: entry["validation"]}
    # Hides MLflow's hints about type annotations and versions; errors are raised.
    with contextlib.redirect_stderr(io.StringIO()), current_store(client.tracking_uri):
        with mlflow.start_run(run_id=run_id, log_system_metrics=False):
            logged = mlflow.pyfunc.log_model(
                name=entry["name"],
                python_model=str(PYFUNC),
                artifacts=artifacts_of(parts),  # MLflow stores files of the same name in separate directories
                code_paths=[str(Path(uqlob_models.__file__ or "").parent)],
                signature=signature(config, entry["objective"], horizons),
                input_example=input_example(config),
                pip_requirements=requirements(),
                metadata={"uqlob.version": entry["version"], "uqlob.name": entry["name"]},
            )
        registered = mlflow.register_model(logged.model_uri, entry["name"], tags=tags)
    return str(registered.version)


def parts_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The models of an entry, each with its members and served state: one, or one per horizon with its `horizon_s`."""
    return list(entry.get("horizons") or [{"members": entry["members"], "state": entry.get("state")}])


def artifacts_of(parts: list[dict[str, Any]]) -> dict[str, str]:
    """The files of a served model by name, as `pyfunc.py` reads them; `5s/` precedes those of one of several horizons."""
    found = {}
    for part in parts:
        prefix = f"{part['horizon_s']}s/" if "horizon_s" in part else ""
        for number, member in enumerate(part["members"], 1):
            found[f"{prefix}member-{number}"] = str(Path(member) / "weights.safetensors")
        if part.get("state"):
            found[f"{prefix}served_state"] = str(part["state"])
    return found


def requirements() -> list[str]:
    """The packages of the served model in versions that the package index has: without a local build such as `+cpu`."""
    return [f"{package}=={version(package).partition('+')[0]}" for package in REQUIREMENTS]


@contextlib.contextmanager
def current_store(uri: str) -> Iterator[None]:
    """MLflow's fluent API uses the store of `uri` within the block, and the previous one after it.

    `set_tracking_uri` also sets MLFLOW_TRACKING_URI, which would otherwise redirect every later lake of the process.
    """
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # None unsets both


def _update_champion_alias(client: Any, name: str, number: str, value: float, validation: str) -> None:
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


def signature(config: dict[str, Any], objective: str, horizons: list[int]) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    shapes = {name: ((-1, *array.shape[1:]), array.dtype) for name, array in input_example(config).items()}
    inputs = Schema([TensorSpec(np.dtype(dtype), shape, name) for name, (shape, dtype) in shapes.items()])
    columns = [ColSpec(DataType.double, name) for name in DOUBLES[objective]]
    columns += [ColSpec(DataType.long, "class"), ColSpec(DataType.string, "class_name")]
    columns += [ColSpec(DataType.long, "gate"), ColSpec(DataType.boolean, "acts")]
    params = [ParamSpec("gate", DataType.long, 90)]
    params += [ParamSpec("horizon_s", DataType.long, horizons[0])] if horizons else []
    if objective == "regression":
        params += [ParamSpec("threshold", DataType.double, 0.0)]
        params += [ParamSpec(name, DataType.long, [], (-1,)) for name in ("t", "past_t")]
        params += [ParamSpec(f"past_{name}", DataType.double, [], (-1,)) for name in (*DISTRIBUTION, "y")]
    return ModelSignature(inputs=inputs, outputs=Schema(columns), params=ParamSchema(params))


def input_example(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """One instance: C context windows and the target, and the C displacements of the context in ticks.

    The values are random, the same each time, and within what the model accepts: they show the shapes, not a market.
    """
    from uqlob_models.config import CONTINUOUS_FEATURES
    from uqlob_models.tokens import VOCABULARY

    context, length = config["head"]["context"], config["encoder"]["window_length"]
    random = np.random.default_rng(0)
    return {
        "tokens": random.integers(VOCABULARY, size=(1, context + 1, length), dtype=np.int32),
        "continuous": random.standard_normal((1, context + 1, len(CONTINUOUS_FEATURES), length), dtype=np.float32),
        "context_displacement": random.integers(-10, 11, size=(1, context)) / 2,
    }
