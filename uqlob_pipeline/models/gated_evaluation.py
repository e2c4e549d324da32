"""Writes `threshold_multiplier` and `gated_evaluation` from `calibrated_predictions`. Nothing is trained or predicted here."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.evaluation import (
    EvaluationTables,
    evaluate,
    fit_threshold_multiplier,
    headline,
    multiplier_table,
    with_regression_class,
)
from uqlob_models.metrics import STATIONARY, directional_f1
from uqlob_models.threshold_multiplier import ThresholdMultiplier, regression_class
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance, require_input
from uqlob_pipeline.models.evaluation_files import CALIBRATED, CLASSIFIED, MULTIPLIER, SCORES, write_evaluation
from uqlob_pipeline.models.inputs import read_threshold


@dataclass(frozen=True)
class MultiplierDone:
    provenance: Provenance
    fitted: ThresholdMultiplier
    on_test: dict[str, float]  # what k* gives there; it had no part in choosing it


@dataclass(frozen=True)
class EvaluationDone:
    provenance: Provenance
    tables: EvaluationTables
    headline: dict[str, float]
    paths: list[Path]


def write_threshold_multiplier(lake: Lake, profile: Profile, key: ModelKey) -> MultiplierDone:
    """k* by the paper's rule from the calibration half alone, with the swept curve."""
    provenance = expected_provenance(lake, profile, MULTIPLIER, key)
    absent = {"mu", "sigma"} - set(pq.read_schema(lake.by_model(CALIBRATED, key)).names)
    if absent:
        raise NotReady(
            f"{MULTIPLIER} of {key} needs the regression head ({', '.join(sorted(absent))} missing from its predictions). "
            f"Materialise uq_regression, predictions and calibrated_predictions for {key}"
        )
    threshold = read_threshold(lake, profile, key, needed_by=MULTIPLIER)
    columns = ["split", "mu", "y", "delta", "p_start"]
    calibration = read_table(lake.by_model(CALIBRATED, key), columns=columns, filters=[("split", "=", "calibration")])
    fitted = fit_threshold_multiplier(calibration, threshold.tau)
    table = multiplier_table(fitted)
    if not table.num_rows:
        raise NotReady(
            f"{MULTIPLIER} of {key}: the calibration half holds no window with a label and a full context, so that k* cannot be "
            "chosen. Validate on longer or more days"
        )
    write_parquet(table, lake.by_model(MULTIPLIER, key), provenance.metadata())
    return MultiplierDone(provenance, fitted, _given_on_test(lake, key, threshold.tau, fitted.k))


def _given_on_test(lake: Lake, key: ModelKey, tau: float, k_star: float) -> dict[str, float]:
    """Shown beside k*, which is written by now: the stationary shares and the directional F1 of the test split."""
    columns = ["split", "mu", "label", "p_start"]
    test = read_table(lake.by_model(CALIBRATED, key), columns=columns, filters=[("split", "=", "test")])
    true = test["label"].to_numpy()
    predicted = regression_class(test["mu"].to_numpy(), test["p_start"].to_numpy(), tau, k_star)
    return {
        "predicted_stationary": float((predicted == STATIONARY).mean()),
        "true_stationary": float((true == STATIONARY).mean()),
        "directional_f1": directional_f1(true, predicted),
    }


def write_gated_evaluation(lake: Lake, profile: Profile, key: ModelKey) -> EvaluationDone:
    """Every metric of the paper, per gate, for the heads that were predicted with."""
    provenance = expected_provenance(lake, profile, SCORES, key)
    threshold = read_threshold(lake, profile, key, needed_by=SCORES)
    predictions = read_table(lake.by_model(CALIBRATED, key))
    if "mu" in predictions.column_names:
        require_input(lake, profile, f"{SCORES} of {key}", MULTIPLIER, key)
    k_star = read_k_star(lake, key) if "mu" in predictions.column_names else 1.0
    loss = profile.training.loss
    tables = evaluate(
        predictions,
        symbol=key.symbol,
        horizon_s=key.horizon_s,
        k_star=k_star,
        tau=threshold.tau,
        y_ref=threshold.y_ref,
        bootstrap=bootstrap(profile),
        p=loss.p,
        w_max=loss.w_max,
        latency_ns=profile.labels.latency_us * 1000,
    )
    paths = []
    if "mu" in predictions.column_names:
        classified = lake.by_model(CLASSIFIED, key)
        write_parquet(with_regression_class(predictions, threshold.tau, k_star), classified, provenance.metadata())
        paths.append(classified)
    paths += write_evaluation(lake, key, tables, provenance.metadata())
    return EvaluationDone(provenance, tables, headline(tables.scores), paths)


def read_k_star(lake: Lake, key: ModelKey) -> float:
    return float(read_table(lake.by_model(MULTIPLIER, key), columns=["k_star"])["k_star"][0].as_py())


def bootstrap(profile: Profile) -> Bootstrap:
    settings = profile.evaluation
    return Bootstrap(settings.bootstrap_block_s, settings.bootstrap_replicates, seed=profile.training.test_seed)
