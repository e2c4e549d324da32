"""`uqlob bench evaluation`: the time of the full metric set, against a plain loop over gates with scikit-learn, in one run.

`synthetic_predictions` are forecasts of Gaussian outcomes whose mean and scale are known and change over time. The tests use
them too, because their coverage, NLPD and gating gain are known.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

TAU = 1e-4
Y_REF = 4.0
WINDOW_NS = 5_000_000_000


def synthetic_predictions(
    windows: int, *, signal: float = 0.6, seed: int = 0, p_start: float = 50_000.0, split: tuple[float, float] = (0.15, 0.30)
) -> pa.Table:
    """A predictions table whose regression head is exact: y ~ N(mu, sigma^2), sigma changes slowly.

    `signal` is the spread of the true mean in units of sigma; 0 is a market without any. `split` is where the selection
    and the calibration half end, as shares of the windows.
    """
    # Imported here so that other commands start fast; likewise below.
    import numpy as np
    import pyarrow as pa

    from uqlob_models.threshold_multiplier import mean_threshold

    generator = np.random.default_rng(seed)
    phase = np.linspace(0, 12 * np.pi, windows)
    sigma = 6 * np.exp(0.5 * np.sin(phase) + 0.2 * generator.standard_normal(windows))
    mu = signal * sigma * generator.standard_normal(windows)
    y = mu + sigma * generator.standard_normal(windows)
    # The price moves with each outcome, so that thresholds in ticks change too.
    start = p_start + np.concatenate([[0.0], np.cumsum(y * 0.7)[:-1]])[:windows]
    start = np.maximum(start, p_start / 2)
    delta = mean_threshold(start, TAU, 1.0)
    label = np.where(y >= delta, 1, np.where(y <= -delta, 0, 2)).astype(np.uint8)
    # The classifier knows sigma and a noisy mean; its probabilities are those of that Gaussian.
    from scipy.special import ndtr

    noisy_mean = mu + 0.3 * sigma * generator.standard_normal(windows) * (signal > 0)
    up, down = ndtr((noisy_mean - delta) / sigma), ndtr((-delta - noisy_mean) / sigma)
    probabilities = np.stack([down, up, 1 - up - down], axis=1).astype(np.float32)
    t = 1_770_000_000 * 10**9 + np.arange(windows, dtype=np.int64) * WINDOW_NS
    position = np.arange(windows) / max(windows, 1)
    names = np.array(["selection", "calibration", "test"])[(position >= split[0]).astype(int) + (position >= split[1])]
    day = t // (86_400 * 10**9)
    return pa.table(
        {
            "date": pa.array(day.astype(np.int32)).cast(pa.date32()),
            "window": (np.arange(windows) % 17_280).astype(np.int32),
            "t": t,
            "split": names.tolist(),
            "y": y,
            "delta": delta,
            "p_start": start,
            "label": label,
            "mu": mu,
            "sigma": sigma,
            "snr": np.abs(mu) / sigma,
            "p_down": probabilities[:, 0],
            "p_up": probabilities[:, 1],
            "p_stationary": probabilities[:, 2],
            "confidence": probabilities.max(axis=1),
            "classification_class": probabilities.argmax(axis=1).astype(np.uint8),
        }
    )


def loop_over_gates(
    predictions: pa.Table, k_star: float, tau: float, y_ref: float
) -> dict[tuple[str, str, int], dict[str, float]]:
    """The same scores without intervals: a threshold, a mask and scikit-learn's metrics for each gate."""
    import numpy as np

    from uqlob_models.evaluation import CLASSIFICATION, REGRESSION, forecasts_of, rows_of
    from uqlob_models.gating import PERCENTILES, TIERS, large_move

    test = rows_of(predictions, "test")
    found = {}
    for head in (REGRESSION, CLASSIFICATION):
        forecasts = forecasts_of(test, head, tau, k_star, y_ref)
        large = large_move(forecasts.y)
        for gate in PERCENTILES:
            keep = forecasts.confidence >= np.percentile(forecasts.confidence, gate)
            found[head, "percentile", gate] = _plain_scores(forecasts, keep)
        for top in TIERS:
            keep = forecasts.confidence >= np.percentile(forecasts.confidence, 100 - top)
            found[head, "tier", top] = _plain_scores(forecasts, keep)
            found[head, "large_moves", top] = _plain_class_scores(forecasts.true[keep & large], forecasts.predicted[keep & large])
        found[head, "percentile", 0] |= _plain_ungated_scores(forecasts)
    return found


def _plain_class_scores(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

    down, up, stationary = f1_score(true, predicted, labels=[0, 1, 2], average=None, zero_division=0)
    scores = {"f1_down": down, "f1_up": up, "f1_stationary": stationary, "directional_f1": (down + up) / 2}
    scores |= {"macro_f1": (down + up + stationary) / 3, "accuracy": accuracy_score(true, predicted)}
    counts = confusion_matrix(true, predicted, labels=[0, 1, 2])
    true_count, predicted_count, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    shared = [
        2 * true_count[c] * predicted_count[c] / (total * (true_count[c] + predicted_count[c]))
        if true_count[c] + predicted_count[c]
        else 0.0
        for c in range(3)
    ]
    scores |= {
        "prior_directional_f1": (true_count[0] + true_count[1]) / total / 2,
        "share_directional_f1": (shared[0] + shared[1]) / 2,
    }
    scores |= {f"true_share_{name}": true_count[c] / total for c, name in enumerate(("down", "up", "stationary"))}
    return scores | {f"predicted_share_{name}": predicted_count[c] / total for c, name in enumerate(("down", "up", "stationary"))}


def _plain_ungated_scores(forecasts: Any) -> dict[str, float]:
    import numpy as np

    losses = (forecasts.true != forecasts.predicted)[np.argsort(-forecasts.confidence, kind="stable")]
    counts = np.arange(1, losses.size + 1)
    aurc, best = (float(np.mean(np.cumsum(ranked) / counts)) for ranked in (losses, np.sort(losses)))
    scores = {"aurc": aurc, "excess_aurc": aurc - best}
    if forecasts.mean is not None:
        edges = np.quantile(forecasts.std, np.linspace(0, 1, 11))
        bins = np.clip(np.digitize(forecasts.std, edges) - 1, 0, 9)
        masks = [bins == number for number in range(10)]
        predicted = np.array([np.sqrt(np.mean(forecasts.std[mask] ** 2)) for mask in masks])
        observed = np.array([np.sqrt(np.mean((forecasts.y - forecasts.mean)[mask] ** 2)) for mask in masks])
        scores["ence"] = float(np.mean(np.abs(predicted - observed) / predicted))
        scores["uce"] = float(np.average(np.abs(predicted**2 - observed**2), weights=[mask.sum() for mask in masks]))
    return scores


def _plain_scores(forecasts: Any, keep: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import r2_score

    from uqlob_models import metrics

    scores = _plain_class_scores(forecasts.true[keep], forecasts.predicted[keep])
    if forecasts.mean is not None:
        y, mean, std = forecasts.y[keep], forecasts.mean[keep], forecasts.std[keep]
        scores["wr2"] = r2_score(y, mean, sample_weight=metrics.magnitude_weights(y, forecasts.y_ref))
        scores["cov68"], scores["cov95"] = metrics.coverage(y, mean, std, 0.68), metrics.coverage(y, mean, std, 0.95)
        scores["nlpd"], scores["crps"] = metrics.nlpd(y, mean, std), metrics.crps(y, mean, std)
    return scores


def measure(predictions_count: int = 2_000_000, seed: int = 0) -> dict[str, float]:
    """The time of both on the same predictions, and the largest difference of their scores."""
    from uqlob_models.bootstrap import Bootstrap
    from uqlob_models.evaluation import evaluate

    evaluated = partial(evaluate, symbol="SYNTHETIC", horizon_s=5, k_star=0.5, tau=TAU, y_ref=Y_REF, bootstrap=Bootstrap())
    small = synthetic_predictions(10_000, seed=seed, split=(0.0, 0.0))
    evaluated(small)  # imports before anything is timed
    loop_over_gates(small, 0.5, TAU, Y_REF)
    predictions = synthetic_predictions(predictions_count, seed=seed, split=(0.0, 0.0))
    began = time.perf_counter()
    tables = evaluated(predictions)
    vectorised = time.perf_counter() - began
    began = time.perf_counter()
    plain = loop_over_gates(predictions, 0.5, TAU, Y_REF)
    looped = time.perf_counter() - began
    rows = tables.scores.to_pylist()
    ours = {(row["head"], row["gate_kind"], row["gate"], row["metric"]): row["value"] for row in rows}
    difference = max(abs(ours[(*gate, name)] - value) for gate, scores in plain.items() for name, value in scores.items())
    return {
        "predictions": predictions_count,
        "metric_values": len(rows),
        "seconds": round(vectorised, 3),
        "predictions_per_second": round(predictions_count / vectorised),
        "loop_seconds": round(looped, 3),
        "loop_predictions_per_second": round(predictions_count / looped),
        "ratio": round(looped / vectorised, 2),
        "largest_difference": float(difference),
    }


def evaluation(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    predictions: Annotated[int, typer.Option(help="How many synthetic predictions.")] = 2_000_000,
) -> None:
    """Predictions/s of the full metric set, both heads and bootstrap included, against a loop over gates with scikit-learn."""
    found = measure(predictions)
    if json:
        from json import dumps

        typer.echo(dumps(found))
        return
    typer.echo(
        f"{found['metric_values']:,} scores of {found['predictions']:,} predictions in {found['seconds']:.2f} s "
        f"({found['predictions_per_second']:,.0f}/s); loop over gates with scikit-learn {found['loop_seconds']:.2f} s "
        f"({found['ratio']:.1f} times as long)"
    )
