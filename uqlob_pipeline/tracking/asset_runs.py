"""What each asset but the training of a stage logs to MLflow: metrics, artefacts and links back to Dagster."""

from pathlib import Path
from typing import TYPE_CHECKING

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.economics.names import ECONOMICS, TRADES
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.models.evaluation_files import MULTIPLIER
from uqlob_pipeline.models.gated_evaluation import EvaluationDone, MultiplierDone
from uqlob_pipeline.models.predictions import PredictionsDone
from uqlob_pipeline.models.stages import HEADS, Stage, read_record
from uqlob_pipeline.tables.dataset_profile import DatasetProfile
from uqlob_pipeline.tracking.client import TrackedRun, Tracking, now_ms
from uqlob_pipeline.tracking.joint_runs import joint_in_use, task_prefix
from uqlob_pipeline.tracking.origin import Origin
from uqlob_pipeline.tracking.outbox import RunIdentity
from uqlob_pipeline.tracking.training_runs import model_params

if TYPE_CHECKING:
    from uqlob_pipeline.economics.economic_evaluation import EconomicsDone
    from uqlob_pipeline.economics.trades import TradesDone


def _finish(run: TrackedRun, origin: Origin, provenance: Provenance, *, deliver: bool) -> str | None:
    """Tag and end a run, upload it now or leave it queued for the next delivery; returns the link to the run."""
    run.tags(origin.tags(run.tracking, provenance))
    run.add("end", status="FINISHED", why="", time=now_ms())
    if deliver:
        run.deliver(now=True)
        run.tracking.flush_pending(run.log)
    return run.url


def fit_written(tracking: Tracking, symbol: str, path: Path, provenance: Provenance, origin: Origin) -> None:
    """A symbol's bins, scales or thresholds. Stays queued: importing MLflow takes longer than the fit."""
    run = tracking.open(tracking.fits(symbol))
    run.artifact(path, provenance.table)
    run.tags({f"data_version.{provenance.table}": provenance.data_version})
    _finish(run, origin, provenance, deliver=False)


def dataset_written(tracking: Tracking, written: DatasetProfile, figures: list[Path], origin: Origin, log: LogFn) -> str | None:
    run = tracking.open(tracking.dataset(), log=log)
    for path in [*written.artefacts(), *figures]:
        run.artifact(path, "dataset_profile")
    run.tags({f"dataset.{name}": value for name, value in written.parameters().items()})
    return _finish(run, origin, written.provenance, deliver=True)


def predictions_written(tracking: Tracking, lake: Lake, key: ModelKey, done: PredictionsDone, origin: Origin) -> str | None:
    run = tracking.open(tracking.model(key))
    run.artifact(lake.predictions(key), "predictions")
    run.metrics({f"predictions/{split}": count for split, count in done.rows.items()}, step=evaluation_step(tracking.profile))
    return _finish(run, origin, done.provenance, deliver=False)


def multiplier_written(
    tracking: Tracking, lake: Lake, key: ModelKey, done: MultiplierDone, figures: list[Path], origin: Origin
) -> str | None:
    run = tracking.open(tracking.model(key))
    run.artifact(lake.by_model(MULTIPLIER, key), MULTIPLIER)
    for figure in figures:
        run.artifact(figure, "figures")
    fitted = done.fitted
    shares = {"predicted_stationary": fitted.predicted_stationary, "true_stationary": fitted.true_stationary}
    run.metrics({"k_star": fitted.k, **{f"calibration/{name}": value for name, value in shares.items()}})
    return _finish(run, origin, done.provenance, deliver=False)


def evaluation_step(profile: Profile) -> int:
    """The step of test metrics, days from the end of the training split to the end of the test split.

    A later end of the test split is a later step of the same run: MLflow shows its scores, and keeps those of earlier ends.
    """
    return (profile.splits.test.last - profile.splits.train.last).days


def evaluation_tags(profile: Profile) -> dict[str, str]:
    """Tags that name the test days of the latest scores."""
    test = profile.splits.test
    return {"test.first": test.first.isoformat(), "test.last": test.last.isoformat()}


def evaluation_written(
    tracking: Tracking, lake: Lake, key: ModelKey, done: EvaluationDone, figures: list[Path], origin: Origin, log: LogFn
) -> str | None:
    """Tables, figures and headline scores on the model's run; the scores of a head also on its run, to sort heads by them."""
    run = tracking.open(tracking.model(key), log=log)
    run.params(model_params(key))
    for path in done.paths:
        run.artifact(path, f"gated_evaluation/{path.parent.parent.name}")
    for figure in figures:
        run.artifact(figure, "figures")
    step, days = evaluation_step(tracking.profile), evaluation_tags(tracking.profile)
    run.metrics(done.headline, step=step)
    run.tags(days)
    _finish(run, origin, done.provenance, deliver=True)
    for stage in HEADS:
        prefix = f"{stage.removeprefix('uq_')}/"
        identity, task = trained_in(tracking, lake, key, stage)
        own = {name.replace(prefix, f"{task}test/"): value for name, value in done.headline.items() if name.startswith(prefix)}
        if identity is not None and own:
            head = tracking.open(identity, log=log)
            head.metrics(own, step=step)
            head.tags(days)
            head.deliver(now=True)
    return run.url


def trained_in(tracking: Tracking, lake: Lake, key: ModelKey, stage: Stage) -> tuple[RunIdentity | None, str]:
    """The run of the training that made the head in use, and the prefix of that head's metrics in it."""
    joint = tracking.profile.training.joint
    if joint != "none":
        return joint_in_use(tracking, lake, key.symbol, "joint_heads"), task_prefix(key, stage, joint == "universal")
    record = read_record(lake.model(stage, key))
    if record is None:
        return None, ""
    return tracking.stage_in_use(key, stage, record.provenance.data_version, record.version), ""


def trades_written(tracking: Tracking, key: ModelKey, done: "TradesDone", origin: Origin) -> str | None:
    """Counts alone: the table may hold millions of rows, and the lake has it."""
    run = tracking.open(tracking.model(key))
    run.metrics({f"{TRADES}/orders": done.orders, f"{TRADES}/filled": done.filled, f"{TRADES}/lots": done.lots})
    return _finish(run, origin, done.provenance, deliver=False)


def economics_written(
    tracking: Tracking, lake: Lake, key: ModelKey, done: "EconomicsDone", figures: list[Path], origin: Origin, log: LogFn
) -> str | None:
    run = tracking.open(tracking.model(key), log=log)
    run.artifact(lake.by_model(ECONOMICS, key), ECONOMICS)
    for figure in figures:
        run.artifact(figure, "figures")
    run.metrics(done.headline)
    run.tags({"economics.verdict": done.verdict})
    return _finish(run, origin, done.provenance, deliver=True)


def report_written(tracking: Tracking, directory: Path, provenance: Provenance, origin: Origin, log: LogFn) -> str | None:
    run = tracking.open(tracking.report(), log=log)
    run.artifact(directory, "report")
    return _finish(run, origin, provenance, deliver=True)
