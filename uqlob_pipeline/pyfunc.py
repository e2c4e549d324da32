"""The served model: MLflow runs this file when it loads a registered model, beside a copy of `uqlob_models` and the weights.

In: named tensors of self-contained instances, the target last among its windows. Out: one row an instance.
"""

from typing import Any

import mlflow
import numpy as np
import pandas as pd  # type: ignore[import-untyped]


class ServedModel(mlflow.pyfunc.PythonModel):
    """Regression: mean, std, intervals, SNR, in ticks. Classification: class probabilities, confidence, class.

    An ensemble is served whole: its members' weights are artefacts, and the columns are those of their mixture.
    """

    def load_context(self, context: Any) -> None:
        from pathlib import Path

        from uqlob_models.checkpoints import load_members

        self.members = load_members([Path(weights).parent for weights in context.artifacts.values()])

    def predict(self, context, model_input, params=None):  # unannotated: MLflow reads hints as a schema
        import torch

        from uqlob_models.prediction import predict_instances

        tokens = torch.from_numpy(np.ascontiguousarray(model_input["tokens"], dtype=np.int32))
        continuous = torch.from_numpy(np.ascontiguousarray(model_input["continuous"], dtype=np.float32))
        context_y = torch.from_numpy(np.ascontiguousarray(model_input["context_displacement"], dtype=np.float64))
        found = predict_instances(self.members, tokens, continuous, context_y)
        return self._regression(found) if self.members[0].kind == "regression" else self._classification(found)

    def _regression(self, found: Any) -> pd.DataFrame:
        from uqlob_models.metrics import interval_width

        columns = {"mean": found.mean, "std": found.std}
        for level in (0.68, 0.95):
            half = interval_width(level) * found.std
            columns |= {f"lower_{level * 100:.0f}": found.mean - half, f"upper_{level * 100:.0f}": found.mean + half}
        return pd.DataFrame(columns | {"snr": np.abs(found.mean) / found.std})

    def _classification(self, found: Any) -> pd.DataFrame:
        probabilities = found.probabilities
        columns = {name: probabilities[:, number] for number, name in enumerate(("p_down", "p_up", "p_stationary"))}
        confidence, chosen = probabilities.max(axis=1), probabilities.argmax(axis=1).astype(np.int64)
        return pd.DataFrame(columns | {"confidence": confidence, "class": chosen})


mlflow.models.set_model(ServedModel())
