"""Scores of a trained encoder and a trained regression head on days that they were not trained on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from uqlob_models.dataset import WindowDataset
    from uqlob_models.encoders import Encoder
    from uqlob_models.model import UqModel

GATES = (0, 50, 90)
TAU = 1e-4  # any small value: the class of a mean depends on k tau and delta only
BLOCK_SECONDS = 300.0
EVALUATED_ON = "calibration"  # the selection half chose the epoch, so that its scores are biased


def encoder_figures(encoder: Encoder, dataset: WindowDataset) -> dict[str, Any]:
    """Macro F1 on the calibration half against guessing by class shares and against gradient boosting on window summaries."""
    # Imported here so that other commands start fast; likewise below.
    from uqlob_models import metrics
    from uqlob_models.prediction import predict_encoder
    from uqlob_pipeline.devtools.bench.learning_baseline import boosted_classes

    targets = dataset.targets(EVALUATED_ON, 0)
    true = dataset.label[targets]
    predicted = predict_encoder(encoder, dataset, targets).probabilities.argmax(axis=1)
    boosted = boosted_classes(dataset, targets)
    counts = metrics.confusion(true, predicted)
    own, other = metrics.macro_f1(true, predicted), metrics.macro_f1(true, boosted)
    prior = float(metrics.prior_matched_f1(counts).mean())
    return {
        "calibration_targets": len(targets),
        "macro_f1": own,
        "directional_f1": metrics.directional_f1(true, predicted),
        "prior_matched_macro_f1": prior,
        "share_matched_macro_f1": float(metrics.share_matched_f1(counts).mean()),
        "boosting_macro_f1": other,
        "boosting_directional_f1": metrics.directional_f1(true, boosted),
        "over_prior": own - prior,
        "over_boosting": own - other,
        "standard_error_of_the_difference": difference_error(true, predicted, boosted),
    }


def difference_error(true: np.ndarray, first: np.ndarray, second: np.ndarray, replicates: int = 200) -> float:
    """Standard error of the difference in macro F1 of two sets of classes, by resampling runs of fifty windows."""
    import numpy as np

    from uqlob_models import metrics

    blocks = np.array_split(np.arange(len(true)), max(len(true) // 50, 2))
    tables = [[metrics.confusion(true[b], predicted[b]) for b in blocks] for predicted in (first, second)]
    drawn = np.random.default_rng(0).integers(len(blocks), size=(replicates, len(blocks)))
    scores = [metrics.f1_of_confusion(np.array(table)[drawn].sum(axis=1)).mean(axis=-1) for table in tables]
    return float(np.std(scores[0] - scores[1], ddof=1))


def regression_table(model: UqModel, dataset: WindowDataset) -> pa.Table:
    """The predictions of the calibration half and of the test days, in the columns that the evaluation reads."""
    import numpy as np
    import pyarrow as pa

    from uqlob_models.dataset import SPLITS
    from uqlob_models.prediction import predict_regression

    targets = np.concatenate([dataset.targets(split, model.config.head.context) for split in ("calibration", "test")])
    found = predict_regression(model, dataset, targets)
    return pa.table(
        {
            "window": targets,
            "t": dataset.t_end[targets],
            "split": [SPLITS[code] for code in dataset.split[targets]],
            "y": dataset.y[targets],
            "delta": dataset.delta[targets],
            "p_start": dataset.delta[targets] / math.expm1(TAU),
            "label": dataset.label[targets],
            "mu": found.mean,
            "sigma": found.std,
            "p_zero": found.distribution.zero,
            "location": found.distribution.location,
            "scale": found.distribution.scale,
            "dof": found.distribution.dof,
            "snr": np.abs(found.mean) / found.std,
        }
    )


def regression_figures(model: UqModel, dataset: WindowDataset, replicates: int = 500) -> dict[str, Any]:
    """Coverage, sign accuracy on true movers and directional F1 of the most confident, on the test days."""
    from uqlob_models.bootstrap import Bootstrap
    from uqlob_models.evaluation import evaluate, fit_threshold_multiplier

    table = regression_table(model, dataset)
    k_star = fit_threshold_multiplier(table, TAU).k
    bootstrap = Bootstrap(block_seconds=BLOCK_SECONDS, replicates=replicates)
    about = {"symbol": "simulated", "horizon_s": dataset.horizon_ns // 10**9, "k_star": k_star, "tau": TAU}
    scores = evaluate(table, **about, y_ref=dataset.y_ref, bootstrap=bootstrap).scores  # type: ignore[arg-type]
    rows = {(row["metric"], row["gate"]): row for row in scores.to_pylist() if row["gate_kind"] == "percentile"}

    def gated(gate: int) -> dict[str, Any]:
        names = {
            "directional_f1": "directional_f1",
            "share_matched_directional_f1": "share_directional_f1",
            "prior_matched_directional_f1": "prior_directional_f1",
            "over_share": "directional_f1_over_share",
            "sign_accuracy": "sign_accuracy",
        }
        return {"retained": rows["directional_f1", gate]["retained"]} | {
            shown: rows[metric, gate]["value"] for shown, metric in names.items()
        }

    return {
        "test_targets": rows["cov68", 0]["retained"],
        **{name: rows[name, 0]["value"] for name in ("cov68", "cov95", "nlpd", "wr2")},
        "k_star": k_star,
        "gates": {str(gate): gated(gate) for gate in GATES},
        "sign_accuracy": with_interval(rows["sign_accuracy", 0]),
        "top_decile_sign_accuracy": with_interval(rows["sign_accuracy", 90]),
        "top_decile_sign_accuracy_gain": with_interval(rows["sign_accuracy_gain", 90]),
        "top_decile_gain": with_interval(rows["directional_f1_gain", 90]),
        "top_half_gain_over_share": with_interval(rows["directional_f1_over_share_gain", 50]),
        "top_decile_gain_over_share": with_interval(rows["directional_f1_over_share_gain", 90]),
    }


def with_interval(row: dict[str, Any]) -> dict[str, Any]:
    """A score and the bounds of its 95 % interval from resampled blocks of time."""
    return {name: row[name] for name in ("value", "lower", "upper")}
