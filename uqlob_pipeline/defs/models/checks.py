"""Checks of trained stages. A weak model is a warning."""

import math

import dagster as dg
import numpy as np

from uqlob_models.coverage import NOMINAL_LEVELS, RULE, coverage_verdict
from uqlob_models.metrics import prior_matched_f1
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.defs.materialization import CheckOutcome, Done
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import why_stale
from uqlob_pipeline.models.stages import OBJECTIVE, Stage, StageRecord

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
FITS = ("token_bins", "feature_scales", "label_thresholds")
DEAD_CONTEXT = 1e-3
INERT_ATTENTION = 1e-2  # relative spread of the weights of time steps


def stage_check_specs(stage: Stage) -> list[dg.AssetCheckSpec]:
    specs = [
        dg.AssetCheckSpec("fits_current", asset=stage, description="bins, scales and thresholds are what a fit would give now")
    ]
    if stage == "encoder":
        description = "the temporal attention weighs time steps unevenly"
        specs.append(dg.AssetCheckSpec("attention_is_used", asset=stage, description=description))
    if stage != "uq_regression":
        description = "macro F1 on the selection half is above guessing with the class shares"
        specs.append(dg.AssetCheckSpec("better_than_guessing", asset=stage, description=description))
    if stage == "uq_regression":
        description = "68 % and 95 % intervals have nominal coverage on the selection half"
        specs.append(dg.AssetCheckSpec("coverage_near_nominal", asset=stage, description=description))
    if stage != "encoder":
        description = "outputs move when the outcomes of the context windows are exchanged"
        specs.append(dg.AssetCheckSpec("context_is_used", asset=stage, description=description))
    return specs


def stage_checks(lake: Lake, profile: Profile, stage: Stage, symbol: str, record: StageRecord) -> list[CheckOutcome]:
    outcomes = [_fits_current(lake, profile, symbol)]
    outcomes.append(_coverage(record) if stage == "uq_regression" else _better_than_guessing(record))
    outcomes.append(_attention_is_used(profile, record) if stage == "encoder" else _context_is_used(profile, stage, record))
    return outcomes


def checks_of_joint_training(done: dict[str, Done]) -> list[CheckOutcome]:
    """The checks of models that were trained together, each once: failed if it failed for any model, with each named."""
    outcomes: dict[str, dict[str, CheckOutcome]] = {}
    for model, one in done.items():
        for outcome in one.checks:
            outcomes.setdefault(outcome.name, {})[model] = outcome
    return [
        CheckOutcome(
            name,
            all(outcome.passed for outcome in of_model.values()),
            "; ".join(f"{model}: {outcome.description}" for model, outcome in of_model.items()),
            WARN,
            {f"{what} {model}": value for model, outcome in of_model.items() for what, value in outcome.metadata.items()},
        )
        for name, of_model in outcomes.items()
    ]


def _fits_current(lake: Lake, profile: Profile, symbol: str) -> CheckOutcome:
    stale = {table: why for table in FITS if (why := why_stale(lake, profile, table, symbol))}
    reasons = "; ".join(f"{table} of {symbol}: {why}" for table, why in stale.items())
    return CheckOutcome(
        "fits_current",
        not stale,
        f"{reasons}; materialise these and what comes after them, then train again" if stale else "the fits are current",
        WARN,
    )


def _better_than_guessing(record: StageRecord) -> CheckOutcome:
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
    parts, verdicts, metadata = [], [], {}
    for level in NOMINAL_LEVELS.values():
        name = f"coverage_{100 * level:.0f}"
        covered, *bounds = (record.validation.get(f"{name}{end}", math.nan) for end in ("", "_lower", "_upper"))
        verdicts.append(coverage_verdict(covered, level, (bounds[0], bounds[1])))
        parts.append(f"{level:.0%} intervals cover {covered:.1%} ({verdicts[-1]})")
        metadata[f"coverage {level:.0%}"] = covered
    fine = all(verdict == "nominal" for verdict in verdicts)
    advice = " Train longer, or look whether the selection days are of another regime than the training days"
    return CheckOutcome(
        "coverage_near_nominal",
        fine,
        f"on the selection half, {', '.join(parts)}" + ("" if fine else f". {RULE}{advice}"),
        WARN,
        metadata,
    )


def _attention_is_used(profile: Profile, record: StageRecord) -> CheckOutcome:
    if profile.training.encoder.kind != "dtabl":
        return CheckOutcome(
            "attention_is_used", True, f"the encoder {profile.training.encoder.kind} has no temporal attention", WARN
        )
    mix, entropy, effect = (record.validation.get(f"attention_{name}", math.nan) for name in ("lambda", "entropy", "effect"))
    live = effect > INERT_ATTENTION
    return CheckOutcome(
        "attention_is_used",
        live,
        f"lambda {mix:.3f}, entropy {entropy:.4f} of a uniform attention's; the weights of time steps vary by {effect:.2%}"
        + ("" if live else ". The attention is inert: set decay_linear_only in [training.pretraining], or ignore it"),
        WARN,
        {"lambda": mix, "entropy": entropy, "effect": effect},
    )


def _context_is_used(profile: Profile, stage: Stage, record: StageRecord) -> CheckOutcome:
    if not profile.training.head.context:
        return CheckOutcome("context_is_used", True, "the profile switches the context off", WARN)
    moved = record.validation.get("context_sensitivity", math.nan)
    section = OBJECTIVE[stage] if profile.training.joint == "none" else "regression"  # whose settings joint heads take
    remedy = f"raise head_rate in [training.{section}], or train longer"
    return CheckOutcome(
        "context_is_used",
        moved > DEAD_CONTEXT,
        f"exchanging the context's outcomes moves the output by {moved:.2g}"
        + ("" if moved > DEAD_CONTEXT else f"; the output barely depends on the context: {remedy}"),
        WARN,
        {"sensitivity": moved},
    )
