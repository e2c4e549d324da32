"""The served model: MLflow runs this file when it loads a registered model, beside a copy of `uqlob_models`, the weights and what
the model learnt on the validation days.

Input: named tensors of complete instances, the target last among its windows. Output: one row per instance. An input that
cannot be forecast, such as NaN or a token outside the vocabulary, is refused with the reason.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from mlflow.exceptions import MlflowException

from uqlob_models.checkpoints import load_members
from uqlob_models.distributions import ZeroInflatedT
from uqlob_models.metrics import CLASS_NAMES, STATIONARY, class_of
from uqlob_models.model import UqModel
from uqlob_models.prediction import ClassificationPrediction, predict_instances
from uqlob_models.served_state import Past, ServedState
from uqlob_models.tokens import VOCABULARY

STATE = "served_state"
ANY_HORIZON = 0  # of a model of one horizon, which takes no horizon
PAST = ("past_p_zero", "past_location", "past_scale", "past_dof", "past_y")


class ServedModel(mlflow.pyfunc.PythonModel):
    """Regression: mean, std, intervals, SNR and the distribution's parameters, in ticks, recalibrated; the head's own with the
    prefix `raw_`. Classification: class probabilities and confidence. Both: class, gate and whether to act.

    The regression mean is classified by the label rule with the parameter `threshold`, in ticks: below it in size the class is
    stationary. Without it (0) the class is up or down, by the sign of the mean.
    The model keeps nothing from one call to the next, so that any number of processes may serve it. It starts from the outcomes
    of the validation days. A caller passes those since then as the parameters `past_*`, in the terms of the `raw_` columns that
    it was answered with, and the times of the instances as `t`: an outcome counts from t_j + d + h on.
    An ensemble is served as a whole: the artefacts are its members' weights, the columns those of their mixture.
    A model of several horizons takes the horizon as the parameter `horizon_s`.
    """

    # MLflow would advise type hints whenever the model is logged or loaded. It has none for named tensors: the logged signature
    # describes and checks them.
    _skip_type_hint_validation = True

    def load_context(self, context: Any) -> None:
        by_horizon: dict[int, dict[str, Path]] = {}
        for name, path in context.artifacts.items():  # "5s/member-1" of one of several horizons, else "member-1"
            horizon, _, part = name.rpartition("/")
            by_horizon.setdefault(int(horizon.removesuffix("s") or ANY_HORIZON), {})[part] = Path(path)
        self.horizons = {horizon: HorizonModel.load(files) for horizon, files in sorted(by_horizon.items())}

    def predict(self, context, model_input, params=None):
        params = params or {}
        model = self._at(int(params.get("horizon_s", ANY_HORIZON)))
        require_forecastable(model_input)
        tokens = torch.from_numpy(np.ascontiguousarray(model_input["tokens"], dtype=np.int32))
        continuous = torch.from_numpy(np.ascontiguousarray(model_input["continuous"], dtype=np.float32))
        context_y = torch.from_numpy(np.ascontiguousarray(model_input["context_displacement"], dtype=np.float64))
        found = predict_instances(model.members, tokens, continuous, context_y)
        if isinstance(found, ClassificationPrediction):
            return model.classification(found.probabilities, params)
        return model.regression(found.distribution, params)

    def _at(self, horizon: int) -> "HorizonModel":
        if horizon not in self.horizons:
            raise _refusal(f"the parameter horizon_s is {horizon}; the model has {', '.join(map(str, self.horizons))} s")
        return self.horizons[horizon]


@dataclass(frozen=True)
class HorizonModel:
    """The heads of one horizon, and what they learnt on the validation days."""

    members: list[UqModel]
    state: ServedState

    @classmethod
    def load(cls, files: dict[str, Path]) -> "HorizonModel":
        state = ServedState.from_json(files[STATE].read_text()) if STATE in files else ServedState()
        return cls(load_members([weights.parent for name, weights in files.items() if name != STATE]), state)

    def regression(self, raw: ZeroInflatedT, params: dict[str, Any]) -> pd.DataFrame:
        threshold = float(params.get("threshold", 0.0))
        if not (np.isfinite(threshold) and threshold >= 0):
            raise _refusal(f"the parameter threshold is {threshold}; it is a number of ticks, 0 or more")
        t, past = outcomes_of(params, len(raw))
        try:
            whole = self.state.published(raw, t, past)
        except ValueError as error:  # a time before the end of the validation days, whose outcomes the model knows
            raise _refusal(f"{error}. The model knows the validation days: t and past_t must be after them") from error
        mean, std = whole.mean(), whole.std()
        columns = {"mean": mean, "std": std}
        for level in (0.68, 0.95):
            lower, upper = whole.interval(level)
            columns |= {f"lower_{level * 100:.0f}": lower, f"upper_{level * 100:.0f}": upper}
        columns |= {"snr": np.abs(mean) / std} | _parameters(whole)
        own = {"mean": raw.mean(), "std": raw.std()} | _parameters(raw)
        columns |= {f"raw_{name}": values for name, values in own.items()}
        return self._decided(columns, class_of(mean, threshold), columns["snr"], params)

    def classification(self, probabilities: np.ndarray, params: dict[str, Any]) -> pd.DataFrame:
        columns = {name: probabilities[:, number] for number, name in enumerate(("p_down", "p_up", "p_stationary"))}
        columns["confidence"] = probabilities.max(axis=1)
        return self._decided(columns, probabilities.argmax(axis=1), columns["confidence"], params)

    def _decided(
        self, columns: dict[str, np.ndarray], chosen: np.ndarray, confidence: np.ndarray, params: dict[str, Any]
    ) -> pd.DataFrame:
        """The class, the tightest gate that the forecast passes, and whether it passes the caller's gate with a direction."""
        gate = self.state.gate(confidence)
        acts = (gate >= int(params.get("gate", 90))) & (chosen != STATIONARY)
        names = [CLASS_NAMES[number] for number in chosen]
        return pd.DataFrame({**columns, "class": chosen.astype(np.int64), "class_name": names, "gate": gate, "acts": acts})


def _parameters(whole: ZeroInflatedT) -> dict[str, np.ndarray]:
    return {"p_zero": whole.zero, "location": whole.location, "scale": whole.scale, "dof": whole.dof}


def outcomes_of(params: dict[str, Any], count: int) -> tuple[np.ndarray | None, Past | None]:
    """The times of the instances and the earlier forecasts with their outcomes, as the caller gives them."""
    t, past_t = (np.asarray(params.get(name, ()), dtype=np.int64) for name in ("t", "past_t"))
    given = {name: np.asarray(params.get(name, ()), dtype=np.float64) for name in PAST}
    if not given["past_dof"].size:
        given["past_dof"] = np.full(len(past_t), np.inf)  # of a Gaussian head; JSON has no infinity
    lengths = {"past_t": len(past_t), **{name: len(values) for name, values in given.items()}}
    if len(set(lengths.values())) > 1:
        raise _refusal(f"the parameters past_* have different lengths: {lengths}; they are one value per earlier forecast each")
    if not t.size and not past_t.size:
        return None, None
    if len(t) != count:
        raise _refusal(
            f"the parameter t has {len(t)} value(s) for {count} instance(s). With past outcomes it is the end of each target "
            "window, in nanoseconds since 1970: an outcome counts only from when it is known"
        )
    *raw, y = given.values()
    if np.isinf(y).any():
        raise _refusal("a value of past_y is infinite; leave out forecasts whose outcome is not known")
    try:
        zero, location, scale, dof = raw
        return t, Past(ZeroInflatedT.of(location, scale, dof, zero), y, past_t)
    except ValueError as error:
        raise _refusal(f"the parameters past_* hold a row that is no forecast: {error}") from error


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
