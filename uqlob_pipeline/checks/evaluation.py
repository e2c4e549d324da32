"""Checks of `predictions`, `threshold_multiplier`, `gated_evaluation` and the report; and whether any of them is stale."""

import math
from typing import TYPE_CHECKING

import dagster as dg

from uqlob_pipeline.assets.days import CheckOutcome
from uqlob_pipeline.evaluations import EvaluationDone, MultiplierDone, ReportDone, model_keys
from uqlob_pipeline.forecasts import PredictionsDone, prediction_faults
from uqlob_pipeline.lake import Lake, ModelKey
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.staleness import BY_MODEL, NOT_THERE, why_report_is_stale

if TYPE_CHECKING:
    from uqlob_models.calibration import ThresholdMultiplier

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
COVERAGE = {"cov68": (0.68, 0.10), "cov95": (0.95, 0.07)}

PREDICTIONS_CHECKS = [
    dg.AssetCheckSpec(
        "finite_and_in_range",
        asset="predictions",
        blocking=True,
        description="no NaN, every sigma above zero, probabilities in [0, 1] that sum to one, each target once",
    ),
    dg.AssetCheckSpec("both_heads", asset="predictions", description="both heads are trained"),
]
MULTIPLIER_CHECKS = [
    dg.AssetCheckSpec(
        "shares_match", asset="threshold_multiplier", description="k* gives the stationary share of the calibration half"
    )
]
EVALUATION_CHECKS = [
    dg.AssetCheckSpec("coverage", asset="gated_evaluation", description="test intervals cover about what they promise"),
    dg.AssetCheckSpec("gating_helps", asset="gated_evaluation", description="the top decile beats the same calls at random"),
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
            f"{counted} of {rows} targets; train the head again with fresh: true" if wrong else f"all {rows} targets are",
            ERROR,
            wrong,
        ),
        CheckOutcome(
            "both_heads",
            not absent,
            f"{absent} of {key} is not trained; materialise it, then predictions again" if absent else "both heads are there",
            WARN,
        ),
    ]


def multiplier_checks(done: MultiplierDone) -> list[CheckOutcome]:
    fitted: ThresholdMultiplier = done.fitted
    said = f"k* = {fitted.k:.4g} calls {fitted.predicted_stationary:.1%} stationary, {fitted.true_stationary:.1%} are"
    return [CheckOutcome("shares_match", fitted.message is None, fitted.message or said, WARN)]


def evaluation_checks(done: EvaluationDone) -> list[CheckOutcome]:
    said, fine = [], True
    for metric, (level, tolerance) in COVERAGE.items():
        covered = done.headline.get(f"regression/{metric}")
        if covered is not None:
            said.append(f"{level:.0%} intervals cover {covered:.1%}")
            fine &= abs(covered - level) <= tolerance
    gains = {
        head: done.headline.get(f"{head}/directional_f1_over_share_top10", math.nan) for head in ("regression", "classification")
    }
    known = {head: gain for head, gain in gains.items() if not math.isnan(gain)}
    helps = bool(known) and all(gain > 0 for gain in known.values())
    shown = ", ".join(f"{head} {gain:+.3f}" for head, gain in known.items()) or "no top decile to speak of"
    return [
        CheckOutcome(
            "coverage",
            fine,
            (", ".join(said) or "no regression head")
            + (
                ""
                if fine
                else "; the conformal columns of gated_evaluation correct the width; see the regime check of window_labels"
            ),
            WARN,
        ),
        CheckOutcome(
            "gating_helps",
            helps,
            f"directional F1 of the top decile over the same calls placed at random: {shown}"
            + ("" if helps else ". Confidence does not tell good forecasts from bad here: do not act on it"),
            WARN,
        ),
    ]


def report_checks(done: ReportDone) -> list[CheckOutcome]:
    missing = done.inputs.missing()
    return [CheckOutcome("complete", not missing, " ".join(missing) or "nothing is missing", WARN)]


# ---- staleness, asked by itself: on a schedule or by hand


def _staleness_check(table: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=table, name=f"{table}_stale", description=f"{table} is what it would be if it were made now")
    def stale(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.AssetCheckResult:
        asked = {str(key): BY_MODEL[table](lake, profile, key) for key in model_keys(profile)}
        there = {key: why for key, why in asked.items() if why != NOT_THERE}
        reasons = {key: why for key, why in there.items() if why}
        return dg.AssetCheckResult(
            passed=not reasons,
            severity=WARN,
            description=(
                f"{table} is stale for {', '.join(reasons)}: materialise it for these models, and then what comes after it"
                if reasons
                else f"{table} of {len(there)} model(s) is what the lake and the profile ask for"
            ),
            metadata={"stale": reasons},
        )

    return stale


@dg.asset_check(asset="paper_report", description="the report is what it would be if it were made now")
def paper_report_stale(lake: dg.ResourceParam[Lake], profile: dg.ResourceParam[Profile]) -> dg.AssetCheckResult:
    why = why_report_is_stale(lake, profile)
    there = why != NOT_THERE
    said = f"the report was {why}: materialise paper_report again" if why and there else "the report is current, or not there"
    return dg.AssetCheckResult(passed=not (why and there), severity=WARN, description=said)


MODEL_STALENESS_CHECKS = [*(_staleness_check(table) for table in BY_MODEL), paper_report_stale]
