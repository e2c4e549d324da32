"""Writes `study_rows` and `study_statistics`: one variant, one seed, one model, evaluated as every forecast is.

Regression forecasts are recalibrated online as published ones are; the scores of the forecasts before that end in `_raw`.
"""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from uqlob_models.config import NO_EFFECT_ON_WEIGHTS, fingerprint
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.study import StudyError, Variant, read_variants
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.layout import Lake, StudyKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, provenance_on_disk, why_differs
from uqlob_pipeline.lake.study_keys import STUDY_ROWS
from uqlob_pipeline.lake.table import ALL_SPLITS, TRAINING_SPLITS
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.models.calibrated_predictions import chosen_settings, recalibrated_table, timing_of
from uqlob_pipeline.models.gated_evaluation import bootstrap
from uqlob_pipeline.models.inputs import gather_inputs, load_windows, read_threshold
from uqlob_pipeline.models.predictions import target_columns

if TYPE_CHECKING:
    from uqlob_pipeline.models.study.variant_forecasts import VariantForecasts

ROWS, STATISTICS = STUDY_ROWS, "study_statistics"
KEPT_GATES = (0, 50, 90)
SOFTMAX, SNR = "softmax", "snr"


@dataclass(frozen=True)
class StudyRowDone:
    provenance: Provenance
    scores: pa.Table
    headline: dict[str, float]
    variant: Variant
    mode: str


def variant_of(profile: Profile, key: StudyKey) -> Variant:
    variants = read_variants(profile.study)
    if key.variant not in variants:
        raise StudyError(f"no variant is called {key.variant}; there are {', '.join(variants)}")
    return variants[key.variant]


def row_mode(profile: Profile, variant: Variant) -> str:
    return (variant.mode or profile.study.mode) if variant.method == "head" else ""


def row_provenance(lake: Lake, profile: Profile, variant: Variant, key: StudyKey) -> Provenance:
    """What the row would be made from now, or NotReady."""
    inputs = gather_inputs(lake, profile, key.model, ALL_SPLITS, needed_by=f"{ROWS} of {key}")
    config = asdict(variant.training_config(profile.training, profile.study.mode, key.seed))
    for stage in ("pretraining", "regression", "classification"):
        for name in NO_EFFECT_ON_WEIGHTS:
            del config[stage][name]
    for name in ("device", "compile", "joint"):  # the study trains each horizon separately, whatever the DAG does
        del config[name]
    own = variant.model_dump(mode="json", exclude={"title", "order", "table", "training", "optional"})
    evaluation = profile.settings_version(
        "evaluation.bootstrap_replicates", "evaluation.bootstrap_block_s", "labels.latency_us", "context.max_age_s",
        "training.head.context",
    )  # fmt: skip
    settings = fingerprint(json.loads(json.dumps({"variant": own, "training": config, "evaluation": evaluation})))
    return Provenance(ROWS, REGISTRY[ROWS].code_version, settings, inputs.versions)


def why_row_stale(lake: Lake, profile: Profile, variant: Variant, key: StudyKey) -> str:
    """Why a row would be made again; empty where it is current."""
    on_disk = provenance_on_disk(lake, ROWS, key)
    if on_disk is None or provenance_on_disk(lake, STATISTICS, key) != on_disk:
        return "missing"
    return why_differs(on_disk, row_provenance(lake, profile, variant, key))


def write_study_row(lake: Lake, profile: Profile, key: StudyKey, log: LogFn) -> StudyRowDone:
    """Train, forecast and evaluate one variant with one seed. An interrupted training resumes."""
    from uqlob_models.evaluation import headline
    from uqlob_pipeline.models.study.variant_forecasts import RowInputs, clear_training, eligible_targets, forecast_variant

    variant = variant_of(profile, key)
    provenance = row_provenance(lake, profile, variant, key)
    config = variant.training_config(profile.training, profile.study.mode, key.seed)
    inputs = gather_inputs(lake, profile, key.model, ALL_SPLITS, needed_by=f"{ROWS} of {key}")
    training = gather_inputs(lake, profile, key.model, TRAINING_SPLITS, needed_by=f"{ROWS} of {key}")
    every_day, training_days = load_windows(lake, profile, inputs), load_windows(lake, profile, training)
    targets = eligible_targets(profile, variant, config, every_day)
    row = RowInputs(lake, profile, variant, key, config, training_days, every_day, targets, log)
    forecasts = forecast_variant(row)
    predictions = pa.table(target_columns(lake, inputs, every_day, targets) | forecasts.columns)
    scores, statistics = _evaluated(lake, profile, key, predictions, forecasts)
    mode = row_mode(profile, variant)
    for name, value in (("variant", key.variant), ("seed", key.seed), ("mode", mode)):
        kind = pa.int32() if name == "seed" else pa.string()
        scores = scores.append_column(name, pa.array([value] * scores.num_rows, kind))
    write_parquet(statistics, lake.by_study_row(STATISTICS, key), provenance.metadata())
    write_parquet(scores, lake.by_study_row(ROWS, key), provenance.metadata())
    clear_training(row)
    first = scores.filter(pc.equal(scores["confidence"], scores["confidence"][0]))
    return StudyRowDone(provenance, scores, headline(first), variant, mode)


def _evaluated(
    lake: Lake, profile: Profile, key: StudyKey, predictions: pa.Table, forecasts: "VariantForecasts"
) -> tuple[pa.Table, pa.Table]:
    """Scores and sums per block, for each confidence score of the row."""
    from uqlob_models.evaluation import evaluate, fit_threshold_multiplier, rows_of

    if not rows_of(predictions, "test").num_rows:
        raise NotReady(f"{ROWS} of {key}: no window of the test days has a label and a full context. Record longer test days")
    threshold = read_threshold(lake, profile, key.model, needed_by=ROWS)
    k_star, regression = 1.0, "mu" in predictions.column_names
    if regression:
        timing = timing_of(profile, key.model)
        settings, _ = chosen_settings(predictions, key.model, timing)
        predictions = recalibrated_table(predictions, settings, timing)
        k_star = fit_threshold_multiplier(predictions, threshold.tau).k
    by_confidence = {SNR if regression else SOFTMAX: predictions}
    if forecasts.snr is not None:
        place = predictions.column_names.index("confidence")
        by_confidence[SNR] = predictions.set_column(place, "confidence", pa.array(forecasts.snr, pa.float64()))
    scores, sums = [], []
    for confidence, table in by_confidence.items():
        found = evaluate(
            table,
            symbol=key.model.symbol,
            horizon_s=key.model.horizon_s,
            k_star=k_star,
            tau=threshold.tau,
            y_ref=threshold.y_ref,
            bootstrap=bootstrap(profile),
            p=profile.training.loss.p,
            w_max=profile.training.loss.w_max,
            latency_ns=profile.labels.latency_us * 1000,
        )
        whole = pa.concat_tables([found.scores, _cost(found.scores, forecasts)])
        kept = found.statistics.filter(pc.is_in(found.statistics["gate"], pa.array(KEPT_GATES, pa.int32())))
        scores.append(whole.append_column("confidence", pa.array([confidence] * whole.num_rows, pa.string())))
        sums.append(kept.append_column("confidence", pa.array([confidence] * kept.num_rows, pa.string())))
    return pa.concat_tables(scores), pa.concat_tables(sums)


def _cost(scores: pa.Table, forecasts: "VariantForecasts") -> pa.Table:
    first = scores.slice(0, 1).to_pylist()[0]
    total = max(row["retained"] for row in scores.select(["retained"]).to_pylist())
    costs: dict[str, Any] = {
        "parameters": forecasts.parameters,
        "core_seconds": forecasts.core_seconds,
        "encoder_core_seconds": forecasts.encoder_core_seconds,
        "milliseconds_per_forecast": forecasts.milliseconds_per_forecast,
    }
    shared = {"gate_kind": "cost", "gate": 0, "lower": None, "upper": None, "retained": total}
    rows = [{**first, **shared, "metric": name, "value": float(value)} for name, value in costs.items()]
    return pa.Table.from_pylist(rows, schema=scores.schema)
