"""The served model: MLflow runs this file when it loads a registered model, beside a copy of `uqlob_models` and the weights.

Input: named tensors of complete instances, the target last among its windows. Output: one row per instance. An input that
cannot be forecast, such as NaN or a token outside the vocabulary, is refused with the reason.
"""

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from mlflow.exceptions import MlflowException

from uqlob_models.checkpoints import load_members
from uqlob_models.metrics import CLASS_NAMES, class_of
from uqlob_models.prediction import predict_instances
from uqlob_models.tokens import VOCABULARY


class ServedModel(mlflow.pyfunc.PythonModel):
    """Regression: mean, std, intervals, SNR and the distribution's parameters, in ticks, and class. Classification: class
    probabilities, confidence, class.

    The regression mean is classified by the label rule with the parameter `threshold`, in ticks: below it in size the class is
    stationary. Without it (0) the class is up or down, by the sign of the mean.
    An ensemble is served as a whole: the artefacts are its members' weights, the columns those of their mixture.
    """

    def load_context(self, context: Any) -> None:
        self.members = load_members([Path(weights).parent for weights in context.artifacts.values()])

    def predict(self, context, model_input, params=None):  # without type hints, which MLflow would read as a schema
        require_forecastable(model_input)
        tokens = torch.from_numpy(np.ascontiguousarray(model_input["tokens"], dtype=np.int32))
        continuous = torch.from_numpy(np.ascontiguousarray(model_input["continuous"], dtype=np.float32))
        context_y = torch.from_numpy(np.ascontiguousarray(model_input["context_displacement"], dtype=np.float64))
        found = predict_instances(self.members, tokens, continuous, context_y)
        if self.members[0].kind == "classification":
            return self._classification(found)
        threshold = float((params or {}).get("threshold", 0.0))
        if not (np.isfinite(threshold) and threshold >= 0):
            raise _refusal(f"the parameter threshold is {threshold}; it is a number of ticks, 0 or more")
        return self._regression(found, threshold)

    def _regression(self, found: Any, threshold: float) -> pd.DataFrame:
        columns, whole = {"mean": found.mean, "std": found.std}, found.distribution
        for level in (0.68, 0.95):
            lower, upper = whole.interval(level)
            columns |= {f"lower_{level * 100:.0f}": lower, f"upper_{level * 100:.0f}": upper}
        columns["snr"] = np.abs(found.mean) / found.std
        # What uqlob_models.recalibration.OnlineCalibrator takes, in a process that learns the outcomes.
        columns |= {"p_zero": whole.zero, "location": whole.location, "scale": whole.scale, "dof": whole.dof}
        return pd.DataFrame(columns | _class_columns(class_of(found.mean, threshold)))

    def _classification(self, found: Any) -> pd.DataFrame:
        probabilities = found.probabilities
        columns = {name: probabilities[:, number] for number, name in enumerate(("p_down", "p_up", "p_stationary"))}
        columns["confidence"] = probabilities.max(axis=1)
        return pd.DataFrame(columns | _class_columns(probabilities.argmax(axis=1)))


def _class_columns(chosen: np.ndarray) -> dict[str, Any]:
    return {"class": chosen.astype(np.int64), "class_name": [CLASS_NAMES[number] for number in chosen]}


def require_forecastable(model_input: Any) -> None:
    """Refuse values that no window of a lake has: the model would turn them into a forecast or fail without a reason."""
    tokens = np.asarray(model_input["tokens"])
    wrong = (tokens < 0) | (tokens >= VOCABULARY)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise _refusal(
            f"tokens{list(place)} is {tokens[place]}, and {int(wrong.sum())} token(s) in all are outside 0 to {VOCABULARY - 1}. "
            "Tokens are those of the table event_features"
        )
    for name in ("continuous", "context_displacement"):
        values = np.asarray(model_input[name])
        wrong = ~np.isfinite(values)
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0].tolist())
            raise _refusal(
                f"{name}{list(place)} is {values[place]}, and {int(wrong.sum())} value(s) in all are not finite. "
                "Leave out instances with a missing feature or a context window whose outcome is not known yet"
            )


def _refusal(reason: str) -> MlflowException:
    """The scoring server answers it with status 400 and the reason."""
    return MlflowException.invalid_parameter_value(f"no forecast: {reason}")


mlflow.models.set_model(ServedModel())
