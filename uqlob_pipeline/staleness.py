"""Which models and evaluations were made from other data or settings than the lake now holds, and why.

Each function answers with an empty string where a table is what it would be if it were made now, and else with the reason:
for asset checks, and for whoever shows the state of a lake.
"""

from collections.abc import Callable

from uqlob_pipeline.evaluation_tables import MULTIPLIER, SCORES, made_apart
from uqlob_pipeline.evaluations import (
    evaluation_provenance,
    model_keys,
    multiplier_provenance,
    read_report_provenance,
    report_provenance,
)
from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.forecasts import plan_predictions
from uqlob_pipeline.lake import Lake, ModelKey, Provenance, read_provenance
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.stages import STAGES, Stage, plan_stage, read_record, why_differs

NOT_THERE = "not there"
Why = Callable[[Lake, Profile, ModelKey], str]


def why_model_is_stale(lake: Lake, profile: Profile, key: ModelKey, stage: Stage) -> str:
    """For one stage of one model."""
    record = read_record(lake.model(stage, key))
    return _why(record.provenance if record else None, lambda: plan_stage(lake, profile, key, stage).provenance)


def why_predictions_are_stale(lake: Lake, profile: Profile, key: ModelKey) -> str:
    made = read_provenance(lake.predictions(key))
    return _why(made, lambda: plan_predictions(lake, profile, key).provenance)


def why_multiplier_is_stale(lake: Lake, profile: Profile, key: ModelKey) -> str:
    made = read_provenance(lake.by_model(MULTIPLIER, key))
    return _why(made, lambda: multiplier_provenance(lake, profile, key))


def why_evaluation_is_stale(lake: Lake, profile: Profile, key: ModelKey) -> str:
    made = read_provenance(lake.by_model(SCORES, key))
    apart = made_apart(lake, key) if made is not None else []
    if apart:
        return f"written in part: {' and '.join(apart)} {'were' if len(apart) > 1 else 'was'} not made together with it"
    return _why(made, lambda: evaluation_provenance(lake, profile, key))


def why_report_is_stale(lake: Lake, profile: Profile) -> str:
    return _why(read_report_provenance(lake), lambda: report_provenance(lake, profile))


def stale_models(lake: Lake, profile: Profile) -> dict[str, dict[str, str]]:
    """By table and model, everything that is there and stale: what a status page shows."""
    found: dict[str, dict[str, str]] = {}
    for table, ask in BY_MODEL.items():
        reasons = {str(key): ask(lake, profile, key) for key in model_keys(profile)}
        found[table] = {key: why for key, why in reasons.items() if why not in ("", NOT_THERE)}
    return found


def _why(made: Provenance | None, wanted: Callable[[], Provenance]) -> str:
    if made is None:
        return NOT_THERE
    try:
        return why_differs(made, wanted())
    except NotReady as error:
        return f"cannot be made now: {error}"


def _of_stage(stage: Stage) -> Why:
    return lambda lake, profile, key: why_model_is_stale(lake, profile, key, stage)


BY_MODEL: dict[str, Why] = {
    **{stage: _of_stage(stage) for stage in STAGES},
    "predictions": why_predictions_are_stale,
    MULTIPLIER: why_multiplier_is_stale,
    "gated_evaluation": why_evaluation_is_stale,
}
