"""Writes `threshold_multiplier`, `gated_evaluation` and the report from `predictions`. Nothing is trained or predicted here."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from uqlob_pipeline.dataset import read_dataset_provenance
from uqlob_pipeline.evaluation_tables import CLASSIFIED, MULTIPLIER, SCORES, evaluation_made, write_evaluation
from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.forecasts import plan_predictions
from uqlob_pipeline.lake import Lake, ModelKey, Provenance, atomic_path, read_provenance, write_parquet
from uqlob_pipeline.model_inputs import read_threshold
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.report.inputs import ReportInputs, read_report_inputs
from uqlob_pipeline.stages import why_differs

if TYPE_CHECKING:
    from uqlob_models.bootstrap import Bootstrap
    from uqlob_models.calibration import ThresholdMultiplier
    from uqlob_models.evaluation import EvaluationTables

MULTIPLIER_CODE, EVALUATION_CODE, REPORT_CODE = "1", "1", "1"
REPORT_PROVENANCE = "provenance.json"


@dataclass(frozen=True)
class MultiplierDone:
    provenance: Provenance
    fitted: "ThresholdMultiplier"
    on_test: dict[str, float]  # what k* gives there; it had no part in choosing it


@dataclass(frozen=True)
class EvaluationDone:
    provenance: Provenance
    tables: "EvaluationTables"
    headline: dict[str, float]
    paths: list[Path]


@dataclass(frozen=True)
class ReportDone:
    provenance: Provenance
    page: Path
    inputs: ReportInputs


def require_predictions(
    lake: Lake, profile: Profile, key: ModelKey, *, needed_by: str, columns: tuple[str, ...] = ()
) -> Provenance:
    """The provenance of the predictions, if they are those that the models and days in the lake would give."""
    made = read_provenance(lake.predictions(key))
    if made is None:
        raise NotReady(f"{needed_by} of {key} needs predictions, which are not there. Materialise predictions for {key} first")
    why = why_differs(made, plan_predictions(lake, profile, key).provenance)
    if why:
        raise NotReady(f"{needed_by} of {key}: its predictions were {why}. Materialise predictions for {key} again")
    absent = set(columns) - set(pq.read_schema(lake.predictions(key)).names)
    if absent:
        raise NotReady(
            f"{needed_by} of {key} needs the regression head ({', '.join(sorted(absent))} are not in its predictions). "
            f"Materialise uq_regression and then predictions for {key}"
        )
    return made


def multiplier_provenance(lake: Lake, profile: Profile, key: ModelKey) -> Provenance:
    made = require_predictions(lake, profile, key, needed_by=MULTIPLIER, columns=("mu", "sigma"))
    threshold = read_threshold(lake, profile, key, needed_by=MULTIPLIER)
    inputs = {"predictions": made.data_version, "label_thresholds": threshold.version}
    return Provenance(MULTIPLIER, MULTIPLIER_CODE, profile.settings_version(), inputs)


def write_threshold_multiplier(lake: Lake, profile: Profile, key: ModelKey) -> MultiplierDone:
    """k* by the paper's rule from the calibration half alone, with the swept curve."""
    from uqlob_models.evaluation import fit_threshold_multiplier, multiplier_table

    provenance = multiplier_provenance(lake, profile, key)
    threshold = read_threshold(lake, profile, key, needed_by=MULTIPLIER)
    columns = ["split", "mu", "y", "delta", "p_start"]
    calibration = pq.read_table(
        lake.predictions(key), columns=columns, filters=[("split", "=", "calibration")], partitioning=None
    )
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
    from uqlob_models.calibration import regression_class
    from uqlob_models.metrics import STATIONARY, directional_f1

    columns = ["split", "mu", "label", "p_start"]
    test = pq.read_table(lake.predictions(key), columns=columns, filters=[("split", "=", "test")], partitioning=None)
    true = test["label"].to_numpy()
    predicted = regression_class(test["mu"].to_numpy(), test["p_start"].to_numpy(), tau, k_star)
    return {
        "predicted_stationary": float((predicted == STATIONARY).mean()),
        "true_stationary": float((true == STATIONARY).mean()),
        "directional_f1": directional_f1(true, predicted),
    }


def evaluation_provenance(lake: Lake, profile: Profile, key: ModelKey) -> Provenance:
    predictions = require_predictions(lake, profile, key, needed_by="gated_evaluation")
    threshold = read_threshold(lake, profile, key, needed_by="gated_evaluation")
    inputs = {"predictions": predictions.data_version, "label_thresholds": threshold.version}
    if "mu" in pq.read_schema(lake.predictions(key)).names:
        made = read_provenance(lake.by_model(MULTIPLIER, key))
        if made is None or made != multiplier_provenance(lake, profile, key):
            state = "which is not there" if made is None else "which was made from other predictions"
            raise NotReady(f"gated_evaluation of {key} needs {MULTIPLIER}, {state}. Materialise {MULTIPLIER} for {key} first")
        inputs[MULTIPLIER] = made.data_version
    drawn = ("evaluation.bootstrap_replicates", "evaluation.bootstrap_block_s", "training.test_seed")
    settings = profile.settings_version(*drawn, "training.loss.p", "training.loss.w_max")
    return Provenance("gated_evaluation", EVALUATION_CODE, settings, inputs)


def write_gated_evaluation(lake: Lake, profile: Profile, key: ModelKey) -> EvaluationDone:
    """Every metric of the paper, per gate, for the heads that were predicted with."""
    from uqlob_models.evaluation import evaluate, headline, with_regression_class

    provenance = evaluation_provenance(lake, profile, key)
    threshold = read_threshold(lake, profile, key, needed_by="gated_evaluation")
    predictions = pq.read_table(lake.predictions(key), partitioning=None)
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
    )
    paths = []
    if "mu" in predictions.column_names:
        classified = lake.by_model(CLASSIFIED, key)
        write_parquet(with_regression_class(predictions, threshold.tau, k_star), classified, provenance.metadata())
        paths.append(classified)
    paths += write_evaluation(lake, key, tables, provenance.metadata())
    return EvaluationDone(provenance, tables, headline(tables.scores), paths)


def read_k_star(lake: Lake, key: ModelKey) -> float:
    return float(pq.read_table(lake.by_model(MULTIPLIER, key), columns=["k_star"], partitioning=None)["k_star"][0].as_py())


def bootstrap(profile: Profile) -> "Bootstrap":
    from uqlob_models.bootstrap import Bootstrap

    settings = profile.evaluation
    return Bootstrap(settings.bootstrap_block_s, settings.bootstrap_replicates, seed=profile.training.test_seed)


def report_inputs(lake: Lake, profile: Profile) -> ReportInputs:
    """Everything that the lake has for the report of a profile."""
    from uqlob_models.summary import parameter_table
    from uqlob_pipeline.staleness import stale_in_report  # which itself asks this module how tables are made

    stages = {"regression": profile.training.regression, "classification": profile.training.classification}
    derived = {name: {"targets_per_step": stage.targets_per_step} for name, stage in stages.items()}
    return read_report_inputs(
        lake,
        profile.symbols,
        profile.evaluation.horizons_s,
        simulated=profile.simulated,
        parameters=[dict(row._asdict()) for row in parameter_table(profile.training)],
        hyperparameters={**profile.model_dump(mode="json"), "derived": derived},
        profile_name=profile.name,
        stale=stale_in_report(lake, profile),
    )


def report_provenance(lake: Lake, profile: Profile) -> Provenance:
    """Of everything that it shows: the forecasts that it draws and the sweeps of k* too."""
    found = {"dataset_profile": read_dataset_provenance(lake)}
    for key in model_keys(profile):
        found |= {f"{table}/{key}": read_provenance(lake.by_model(table, key)) for table in ("predictions", MULTIPLIER)}
        found[f"{SCORES}/{key}"] = evaluation_made(lake, key)
    inputs = {name: made.data_version for name, made in found.items() if made is not None}
    return Provenance("paper_report", REPORT_CODE, profile.settings_version("name", "evaluation", "training", "labels"), inputs)


def model_keys(profile: Profile) -> list[ModelKey]:
    return [ModelKey(symbol, horizon) for symbol in profile.symbols for horizon in profile.evaluation.horizons_s]


def write_report(
    lake: Lake, profile: Profile, output: Path | None = None, progress: Callable[[str], None] | None = None
) -> ReportDone:
    """The page from what the lake has, or NotReady where nothing is evaluated."""
    from uqlob_pipeline.report.page import build_report

    provenance, inputs = report_provenance(lake, profile), report_inputs(lake, profile)
    if not inputs.evaluations:
        raise NotReady(f"paper_report: nothing is evaluated in {lake.root}. Materialise gated_evaluation for some models first")
    directory = output or lake.report
    page = build_report(inputs, directory, bootstrap=bootstrap(profile), progress=progress)
    with atomic_path(directory / REPORT_PROVENANCE) as temporary:
        temporary.write_text(
            json.dumps({**asdict(provenance), "data_version": provenance.data_version}, indent=1, sort_keys=True)
        )
    return ReportDone(provenance, page, inputs)


def read_report_provenance(lake: Lake) -> Provenance | None:
    path = lake.report / REPORT_PROVENANCE
    return Provenance.from_json(path.read_text()) if path.is_file() else None
