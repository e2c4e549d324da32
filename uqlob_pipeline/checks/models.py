"""Checks of the groups `models` and `evaluation` that run with their assets. Wrong forecasts block; weak ones are a warning."""

import math
from typing import Any

import dagster as dg

from uqlob_pipeline.assets.days import CheckOutcome
from uqlob_pipeline.features import why_bins_are_stale, why_scales_are_stale
from uqlob_pipeline.labels import why_thresholds_are_stale
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.stages import Stage, StageRecord

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
COVERAGE_68 = (0.58, 0.78)
DEAD_CONTEXT = 1e-3


def stage_check_specs(stage: Stage) -> list[dg.AssetCheckSpec]:
    specs = [
        dg.AssetCheckSpec("fits_current", asset=stage, description="bins, scales and thresholds are what a fit would give now")
    ]
    if stage != "uq_regression":
        said = "macro F1 on the selection half is above guessing with the class shares"
        specs.append(dg.AssetCheckSpec("better_than_guessing", asset=stage, description=said))
    if stage == "uq_regression":
        said = f"68 % intervals cover {COVERAGE_68[0]:.0%} to {COVERAGE_68[1]:.0%} of the selection half"
        specs.append(dg.AssetCheckSpec("coverage_near_nominal", asset=stage, description=said))
    if stage != "encoder":
        said = "outputs move when the outcomes of the context windows are exchanged"
        specs.append(dg.AssetCheckSpec("context_is_used", asset=stage, description=said))
    return specs


def stage_checks(lake: Lake, profile: Profile, stage: Stage, symbol: str, record: StageRecord) -> list[CheckOutcome]:
    outcomes = [_fits_current(lake, profile, symbol)]
    outcomes.append(_coverage(record) if stage == "uq_regression" else _better_than_guessing(record))
    if stage != "encoder":
        outcomes.append(_context_is_used(profile, record))
    return outcomes


def _fits_current(lake: Lake, profile: Profile, symbol: str) -> CheckOutcome:
    asked = {
        "token_bins": why_bins_are_stale,
        "feature_scales": why_scales_are_stale,
        "label_thresholds": why_thresholds_are_stale,
    }
    stale = {table: why for table, ask in asked.items() if (why := ask(lake, profile, symbol))}
    said = "; ".join(f"{table} of {symbol}: {why}" for table, why in stale.items())
    return CheckOutcome(
        "fits_current",
        not stale,
        f"{said}; materialise these and what comes after them, then train again" if stale else "the fits are current",
        WARN,
    )


def _better_than_guessing(record: StageRecord) -> CheckOutcome:
    import numpy as np

    from uqlob_models.metrics import prior_matched_f1

    guessing = float(np.mean(prior_matched_f1(np.asarray(record.confusion))))
    reached = record.best_metric
    return CheckOutcome(
        "better_than_guessing",
        reached > guessing,
        f"macro F1 {reached:.3f} on the selection half, {guessing:.3f} by guessing with its class shares"
        + ("" if reached > guessing else "; look at the training curves: too few windows, too high a rate, or no signal"),
        WARN,
        {"macro F1": reached, "guessing": guessing},
    )


def _coverage(record: StageRecord) -> CheckOutcome:
    covered = record.validation.get("coverage_68", math.nan)
    fine = COVERAGE_68[0] <= covered <= COVERAGE_68[1]
    return CheckOutcome(
        "coverage_near_nominal",
        fine,
        f"68 % intervals cover {covered:.1%} of the selection half"
        + ("" if fine else "; train longer, or look whether the selection days are of another regime than the training days"),
        WARN,
        {"coverage 68 %": covered},
    )


def _context_is_used(profile: Profile, record: StageRecord) -> CheckOutcome:
    if not profile.training.head.context:
        return CheckOutcome("context_is_used", True, "the profile switches the context off", WARN)
    moved = record.validation.get("context_sensitivity", math.nan)
    return CheckOutcome(
        "context_is_used",
        moved > DEAD_CONTEXT,
        f"exchanging the context's outcomes moves the output by {moved:.2g}"
        + ("" if moved > DEAD_CONTEXT else "; the context path is dead: raise training head_rate, or train longer"),
        WARN,
        {"sensitivity": moved},
    )


def results(context: dg.AssetExecutionContext, outcomes: list[CheckOutcome]) -> list[dg.AssetCheckResult]:
    """The outcomes as Dagster takes them; NaN has no place in its metadata."""
    return [
        dg.AssetCheckResult(
            check_name=outcome.name,
            asset_key=context.asset_key,
            passed=outcome.passed,
            severity=outcome.severity,
            description=outcome.description,
            metadata={name: _shown(value) for name, value in outcome.metadata.items()},
        )
        for outcome in outcomes
    ]


def _shown(value: Any) -> Any:
    return "not defined" if isinstance(value, float) and math.isnan(value) else value
