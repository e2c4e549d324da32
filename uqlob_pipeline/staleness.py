"""Which models and evaluations were made from other data or settings than the lake now holds, and why.

Each function answers with an empty string where a table is what it would be if it were made now, and else with the reason:
for asset checks, and for whoever shows the state of a lake.
"""

from collections.abc import Callable

from uqlob_pipeline.dataset import plan_dataset_profile, read_dataset_provenance
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
    return why_not_current(record.provenance if record else None, lambda: plan_stage(lake, profile, key, stage).provenance)


def why_predictions_are_stale(lake: Lake, profile: Profile, key: ModelKey) -> str:
    made = read_provenance(lake.predictions(key))
    return why_not_current(made, lambda: plan_predictions(lake, profile, key).provenance)


def why_multiplier_is_stale(lake: Lake, profile: Profile, key: ModelKey) -> str:
    made = read_provenance(lake.by_model(MULTIPLIER, key))
    return why_not_current(made, lambda: multiplier_provenance(lake, profile, key))


def why_evaluation_is_stale(lake: Lake, profile: Profile, key: ModelKey) -> str:
    made = read_provenance(lake.by_model(SCORES, key))
    apart = made_apart(lake, key) if made is not None else []
    if apart:
        return f"written in part: {' and '.join(apart)} {'were' if len(apart) > 1 else 'was'} not made together with it"
    return why_not_current(made, lambda: evaluation_provenance(lake, profile, key))


def why_report_is_stale(lake: Lake, profile: Profile) -> str:
    return why_not_current(read_report_provenance(lake), lambda: report_provenance(lake, profile))


def stale_in_report(lake: Lake, profile: Profile) -> dict[str, dict[str, str]]:
    """By table and by what it is of, everything that a report made now would show although it is stale, and why it is."""
    asked = {"dataset_profile": {"dataset_profile": why_dataset_profile_is_stale(lake, profile)}}
    for table in ("predictions", MULTIPLIER, SCORES):
        asked[table] = {str(key): BY_MODEL[table](lake, profile, key) for key in model_keys(profile)}
    return {table: {of: why for of, why in reasons.items() if why not in ("", NOT_THERE)} for table, reasons in asked.items()}


def why_dataset_profile_is_stale(lake: Lake, profile: Profile) -> str:
    return why_not_current(read_dataset_provenance(lake), lambda: plan_dataset_profile(lake, profile)[1])


def why_not_current(made: Provenance | None, wanted: Callable[[], Provenance]) -> str:
    """Why a table is not what it would be if it were made now, which may be that it cannot be made now."""
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
