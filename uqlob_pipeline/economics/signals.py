"""Which forecasts are acted on, and how large: everything is fitted on the calibration half.

A head acts where its confidence reaches the gate's threshold, which is a quantile of the calibration half, and where it predicts
up (buy) or down (sell). k* and the size come from the calibration half too.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uqlob_models.evaluation import CLASSIFICATION, REGRESSION, column, forecasts_of, rows_of
from uqlob_models.metrics import DOWN, UP
from uqlob_pipeline.economics.names import BUY, CALIBRATION, SELL, TEST


@dataclass(frozen=True)
class Signal:
    """One head's decisions: for every row of the acting splits, in order."""

    head: str
    gate: int
    threshold: float
    side: NDArray[np.int64]  # BUY, SELL, or 0 where it does not act
    forecast: NDArray[np.float64]  # regression: mean, ticks; classification: probability of up minus that of down
    lower: NDArray[np.float64]  # 95 % interval of the regression head; NaN for classification
    upper: NDArray[np.float64]


def acting_rows(predictions: pa.Table) -> pa.Table:
    """The calibration half and the test split, in order of time."""
    return pa.concat_tables([rows_of(predictions, CALIBRATION), rows_of(predictions, TEST)]).sort_by("t")


def signals_of(predictions: pa.Table, gates: tuple[int, ...], tau: float, k_star: float) -> list[Signal]:
    """The decisions of every head and gate."""
    rows, fitted_on = acting_rows(predictions), rows_of(predictions, CALIBRATION)
    found = []
    for head, needs in ((REGRESSION, "mu"), (CLASSIFICATION, "confidence")):
        if needs not in predictions.column_names:
            continue
        forecasts = forecasts_of(rows, head, tau, k_star, 1.0)
        calibration = forecasts_of(fitted_on, head, tau, k_star, 1.0).confidence
        wanted = np.select([forecasts.predicted == UP, forecasts.predicted == DOWN], [BUY, SELL], 0)
        if head == REGRESSION:
            forecast, lower, upper = (column(rows, name, np.float64) for name in ("mu", "lower_95", "upper_95"))
        else:
            forecast = column(rows, "p_up", np.float64) - column(rows, "p_down", np.float64)
            lower = upper = np.full(len(wanted), np.nan)
        for gate in gates:
            threshold = float(np.quantile(calibration, gate / 100)) if gate and len(calibration) else -np.inf
            side = np.where(forecasts.confidence >= threshold, wanted, 0).astype(np.int64)
            found.append(Signal(head, gate, threshold, side, forecast, lower, upper))
    return found
