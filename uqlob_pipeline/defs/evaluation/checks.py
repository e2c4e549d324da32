"""Checks of `predictions`, `calibrated_predictions`, `threshold_multiplier`, `gated_evaluation` and the report."""

from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.coverage import NOMINAL_LEVELS, RULE, coverage_verdict
from uqlob_models.evaluation import REGRESSION
from uqlob_pipeline.defs.materialization import CheckOutcome
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.models.calibrated_predictions import CalibratedDone, interval_faults
from uqlob_pipeline.models.evaluation_files import CALIBRATED
from uqlob_pipeline.models.gated_evaluation import EvaluationDone, MultiplierDone
from uqlob_pipeline.models.predictions import PredictionsDone, prediction_faults
from uqlob_pipeline.report.build import ReportDone

if TYPE_CHECKING:
    from uqlob_models.threshold_multiplier import ThresholdMultiplier

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR

PREDICTIONS_CHECKS = [
    dg.AssetCheckSpec(
        "finite_and_in_range",
        asset="predictions",
        blocking=True,
        description="no NaN, every sigma above zero, probabilities in [0, 1] that sum to one, each target once",
    ),
    dg.AssetCheckSpec("both_heads", asset="predictions", description="both heads are trained"),
]
CALIBRATED_CHECKS = [
    dg.AssetCheckSpec(
        "finite_and_ordered",
        asset="calibrated_predictions",
        blocking=True,
        description="no NaN, every sigma above zero, the 68 % interval within the 95 % interval, each target once",
    ),
    dg.AssetCheckSpec(
        "learned_scale_helps",
        asset="calibrated_predictions",
        description="on the calibration half, the head's scale is better than an EWMA of absolute errors alone",
    ),
]
MULTIPLIER_CHECKS = [
    dg.AssetCheckSpec(
        "shares_match", asset="threshold_multiplier", description="k* gives the stationary share of the calibration half"
    )
]
EVALUATION_CHECKS = [
    dg.AssetCheckSpec("coverage", asset="gated_evaluation", description="test intervals have nominal coverage"),
    dg.AssetCheckSpec("gating_helps", asset="gated_evaluation", description="the top decile has the better sign on true movers"),
]
REPORT_CHECKS = [dg.AssetCheckSpec("complete", asset="paper_report", description="nothing is missing from the report")]


def predictions_checks(lake: Lake, key: ModelKey, done: PredictionsDone) -> list[CheckOutcome]:
    rows = sum(done.rows.values())
    wrong = {fault: count for fault, count in prediction_faults(lake.predictions(key)).items() if count}
    counted = ", ".join(f"{fault.replace('_', ' ')}: {count}" for fault, count in wrong.items())
    absent = ", ".join(done.missing_heads)
    return [
        CheckOutcome(
            "finite_and_in_range",
            not wrong,
            f"{counted} of {rows} targets; train the head again with fresh: true"
            if wrong
            else f"all {rows} targets are finite and in range",
            ERROR,
            wrong,
        ),
        CheckOutcome(
            "both_heads",
            not absent,
            f"{absent} of {key} is not trained; materialise it, then predictions again" if absent else "both heads are trained",
            WARN,
        ),
    ]


def calibrated_checks(lake: Lake, key: ModelKey, done: CalibratedDone) -> list[CheckOutcome]:
    path = lake.by_model(CALIBRATED, key)
    wrong = {fault: count for fault, count in {**prediction_faults(path), **interval_faults(path)}.items() if count}
    counted = ", ".join(f"{fault.replace('_', ' ')}: {count}" for fault, count in wrong.items())
    advice = "; materialise predictions again"
    finite = CheckOutcome(
        "finite_and_ordered",
        not wrong,
        f"{counted}{advice}" if wrong else f"all {done.rows} targets are finite and ordered",
        ERROR,
        wrong,
    )
    if done.settings is None:
        return [finite, CheckOutcome("learned_scale_helps", True, "no regression head", WARN)]
    learned = done.settings.scale_power > 0
    ewma = min(score for name, score in done.scores.items() if name.startswith("power 0 "))
    best = min(done.scores.values())
    text = f"log score {best:.4f} with the head's scale to the power {done.settings.scale_power:g}, {ewma:.4f} with an EWMA alone"
    remedy = (
        "" if learned else ". The learned scale does not improve the log score here; the EWMA of absolute errors is used instead"
    )
    return [finite, CheckOutcome("learned_scale_helps", learned, text + remedy, WARN, {"best": best, "EWMA": ewma})]


def multiplier_checks(done: MultiplierDone) -> list[CheckOutcome]:
    fitted: ThresholdMultiplier = done.fitted
    shares = (
        f"k* = {fitted.k:.4g} predicts {fitted.predicted_stationary:.1%} stationary; {fitted.true_stationary:.1%} are stationary"
    )
    return [CheckOutcome("shares_match", fitted.message is None, fitted.message or shares, WARN)]


def evaluation_checks(done: EvaluationDone) -> list[CheckOutcome]:
    return [coverage_outcome(done.tables.scores), gating_outcome(done.tables.scores)]


def gating_outcome(scores: pa.Table) -> CheckOutcome:
    """Whether the most confident tenth has a better sign among the outcomes that moved than the full set has."""
    chosen = ("percentile", 90, "sign_accuracy_gain")
    rows = [row for row in scores.to_pylist() if (row["gate_kind"], row["gate"], row["metric"]) == chosen]
    known = [row for row in rows if row["value"] is not None]
    helps = bool(known) and all(row["lower"] is not None and row["lower"] > 0 for row in known)
    shown = ", ".join(f"{row['head']} {row['value']:+.3f} {_bounds(row)}" for row in known) or "no forecasts in the top decile"
    remedy = "" if helps else ". Confidence does not clearly tell good forecasts from bad here: do not act on it"
    return CheckOutcome(
        "gating_helps", helps, f"sign accuracy on true movers, top decile minus the full set: {shown}{remedy}", WARN
    )


def _bounds(row: dict[str, Any]) -> str:
    if row["lower"] is None or row["upper"] is None:
        return f"(no interval: fewer than {Bootstrap.minimum_blocks} blocks)"
    return f"({row['lower']:+.3f} to {row['upper']:+.3f})"


def coverage_outcome(scores: pa.Table) -> CheckOutcome:
    """Whether the published test intervals have nominal coverage, with the head's own beside them."""
    rows = {
        row["metric"]: row
        for row in scores.to_pylist()
        if (row["head"], row["gate_kind"], row["gate"]) == (REGRESSION, "percentile", 0) and row["value"] is not None
    }
    found: dict[str, list[str]] = {"": [], "_raw": []}
    verdicts = []
    for suffix, parts in found.items():
        for metric, level in NOMINAL_LEVELS.items():
            row = rows.get(f"{metric}{suffix}")
            if row is not None:
                bounds = None if row["lower"] is None or row["upper"] is None else (row["lower"], row["upper"])
                verdict = coverage_verdict(row["value"], level, bounds)
                parts.append(f"{level:.0%} intervals cover {row['value']:.1%} ({verdict})")
                verdicts += [verdict] if not suffix else []
    fine = all(verdict == "nominal" for verdict in verdicts)
    text = ", ".join(found[""]) or "no regression head"
    if found["_raw"]:
        text += f"; before recalibration, {', '.join(found['_raw'])}"
    remedy = "" if fine else f". {RULE} See the regime check of window_labels"
    return CheckOutcome("coverage", fine, text + remedy, WARN)


def report_checks(done: ReportDone) -> list[CheckOutcome]:
    missing = done.inputs.missing()
    return [CheckOutcome("complete", not missing, " ".join(missing) or "nothing is missing", WARN)]
