"""What each asset logs to MLflow: parameters, input datasets, metrics, artefacts and links back to Dagster."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.economics.vocabulary import ECONOMICS, TRADES
from uqlob_pipeline.lake.file_hashes import file_hash, read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.models.evaluation_files import MULTIPLIER
from uqlob_pipeline.models.gated_evaluation import EvaluationDone, MultiplierDone
from uqlob_pipeline.models.inputs import LogFn
from uqlob_pipeline.models.predictions import PredictionsDone
from uqlob_pipeline.models.stage_training import ALREADY, train_stage_unlocked
from uqlob_pipeline.models.stages import (
    HEADS,
    HISTORY,
    RECORD,
    SERVED_STATE,
    StagePlan,
    StageRecord,
    member_prefix,
    read_record,
    training_lock,
)
from uqlob_pipeline.models.training_figures import CONFUSION, CURVES, PARAMETERS
from uqlob_pipeline.tables.dataset_profile import DatasetProfile
from uqlob_pipeline.tracking.client import OUTBOX, TrackedRun, Tracking, now_ms
from uqlob_pipeline.tracking.model_registry import registered_name

if TYPE_CHECKING:
    import dagster as dg

    from uqlob_pipeline.economics.economic_evaluation import EconomicsDone
    from uqlob_pipeline.economics.trades import TradesDone

CONTEXTS = {"train": "training", "validation": "selection"}


@dataclass(frozen=True)
class Origin:
    """The Dagster run that materialised an asset."""

    run_id: str
    partition: str
    asset: str

    @classmethod
    def of(cls, context: "dg.AssetExecutionContext") -> "Origin":
        partition = str(context.partition_key) if context.has_partition_key else ""
        return cls(context.run.run_id, partition, context.asset_key.to_user_string())

    def tags(self, tracking: Tracking, provenance: Provenance) -> dict[str, str]:
        url = f"{tracking.dagster_ui}/runs/{self.run_id}"
        return {
            "dagster.run_id": self.run_id,
            "dagster.partition": self.partition,
            "dagster.asset": self.asset,
            "dagster.url": url,
            "code_version": provenance.code_version,
            "data_version": provenance.data_version,
            "settings_version": provenance.settings_version,
            "mlflow.note.content": f"Made by [Dagster run {self.run_id[:8]}]({url}), {self.asset} {self.partition}.",
        }


# ---- stages


def train_tracked(
    tracking: Tracking, lake: Lake, plan: StagePlan, origin: Origin, *, fresh: bool, log: LogFn
) -> tuple[StageRecord, str | None]:
    """Train a stage and log it to an MLflow run; returns its record and the link to the run.

    A resumed training continues its run. A finished training is not repeated, and logged again only if its upload is incomplete.
    """
    with training_lock(lake, plan.home, log):
        done = plan.finished()
        identity = tracking.stage(plan.key, plan.stage, plan.data_version)
        if done is not None and not (fresh or plan.is_unfinished) and tracking.is_complete(identity, done.version):
            log(f"{plan}: {ALREADY.format(version=done.version)}")
            return done, tracking.url(identity)
        tracking.flush_pending(log)
        if fresh and (done is not None or plan.is_unfinished):
            identity = tracking.new_training(plan.key, plan.stage, plan.data_version)
        repetition = f"-{identity.training}" if identity.training > 1 else ""
        outbox = plan.home / f"{plan.data_version}{repetition}-{OUTBOX}"
        with tracking.start_run(identity, outbox, log) as run:
            profile = tracking.profile
            run.tags(origin.tags(tracking, plan.provenance))
            sections = {name: getattr(profile, name).model_dump(mode="json") for name in ("splits", "labels", "features")}
            del sections["splits"]["test"]  # may be moved without a new training; evaluations say which days they are of
            run.params(model_params(plan.key) | {"head": plan.stage.removeprefix("uq_")})
            run.params({"training": asdict(profile.training), **sections})
            run.add("inputs", datasets=_datasets(lake, plan))
            run.deliver()

            def log_epoch(epoch: dict[str, float], member: int) -> None:
                run.add("epochs", prefix=member_prefix(member), epochs=[_as_floats(epoch)], time=now_ms())
                run.deliver()

            # The entries of a finished training are in the outbox before the training counts as finished: a kill in between
            # leaves either a training to resume or an outbox to deliver.
            record = train_stage_unlocked(
                lake,
                profile,
                plan,
                fresh=fresh,
                log=log,
                on_epoch=log_epoch,
                on_finished=lambda finished: log_finished_stage(run, plan, finished),
            )
        tracking.mark_complete(run, record.version)
        return record, run.url


def model_params(key: ModelKey) -> dict[str, Any]:
    """What tells the runs of a comparison apart."""
    return {"symbol": key.symbol, "horizon_s": key.horizon_s}


def _as_floats(epoch: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in epoch.items()}


def _datasets(lake: Lake, plan: StagePlan) -> list[dict[str, str]]:
    """One dataset per split: its days, its windows, and the version of every input."""
    datasets = []
    for split, days in plan.inputs.days.items():
        versions = _versions_of_split(plan, split)
        source = {"tables": "event_features, window_labels", "symbol": plan.key.symbol, "horizon_s": plan.key.horizon_s}
        counts = [_count_windows(lake, plan.key, day) for day in days]
        profile = {
            "windows": sum(windows for windows, _ in counts),
            "labelled_windows": sum(labelled for _, labelled in counts),
            "days": [day.date.isoformat() for day in days],
            "versions": versions,
        }
        datasets.append(
            {
                "name": f"{plan.key} {split}",
                "digest": _digest(versions | {"horizon_s": str(plan.key.horizon_s)}),  # other horizons are other labels
                "source": json.dumps(source),
                "profile": json.dumps(profile)[:65_000],
                "context": CONTEXTS[split],
            }
        )
    return datasets


def validation_version(profile: Profile, plan: StagePlan) -> str:
    """Version of the validation data and of the settings that weight it; metrics are comparable where it is equal."""
    keys = ("training.loss.p", "training.loss.w_max", "training.head.context", "labels.latency_us", "context.max_age_s")
    return _digest(_versions_of_split(plan, "validation") | {"settings": profile.settings_version(*keys)})


def _versions_of_split(plan: StagePlan, split: str) -> dict[str, str]:
    return {name: version for name, version in plan.provenance.inputs.items() if name.startswith(f"{split}/")}


def _digest(versions: dict[str, str]) -> str:
    return hashlib.blake2b(json.dumps(versions, sort_keys=True).encode(), digest_size=8).hexdigest()


def _count_windows(lake: Lake, key: ModelKey, day: AssetDay) -> tuple[int, int]:
    """Windows of a day, and how many of them have a label at the model's horizon."""
    at_horizon = [("horizon_s", "=", key.horizon_s)]
    label = read_table(lake.window_labels(day), columns=["label"], filters=at_horizon)["label"]
    return len(label), len(label) - label.null_count


def log_finished_stage(run: TrackedRun, plan: StagePlan, record: StageRecord) -> None:
    """All epochs, the final metrics and files, and the registered model of a head."""
    ended = int((record.directory / HISTORY).stat().st_mtime * 1000)  # the same each time the training is logged
    files = [member / "weights.safetensors" for member in record.members]
    weights = {run.tracking.relative_path(path): file_hash(path) for path in files}
    for number, epochs in enumerate(record.histories(), 1):
        run.add("epochs", prefix=member_prefix(number), epochs=[_as_floats(epoch) for epoch in epochs], time=ended)
    outcome = {f"best/{record.metric}": record.best_metric, "best/epoch": record.best_epoch, "steps": record.steps}
    run.metrics(outcome | {f"windows/{split}": count for split, count in record.windows.items()}, time=ended)
    run.tags({"uqlob.version": record.version, "uqlob.device": record.history()["device"]})
    for number, member in enumerate(record.members, 1):
        run.artifact(member, f"checkpoint/{member_prefix(number)}".rstrip("/"), weights=weights)
    for name in (CURVES, CONFUSION, PARAMETERS):
        run.artifact(record.directory / name, "figures" if name.endswith(".png") else "tables", weights=weights)
    run.artifact(plan.home / RECORD, "checkpoint", weights=weights)
    if plan.stage in HEADS:
        state = record.directory / SERVED_STATE  # missing from trainings of older versions: the model then starts cold
        run.add(
            "model",
            name=registered_name(plan.key.symbol, plan.key.horizon_s, plan.objective, run.tracking.profile.name),
            profile=run.tracking.profile.name,
            validation=validation_version(run.tracking.profile, plan),
            objective=plan.objective,
            members=[run.tracking.relative_path(member) for member in record.members],
            state=run.tracking.relative_path(state) if state.is_file() else None,
            weights=weights,
            version=record.version,
            metric=record.metric,
            value=record.best_metric,
        )
    run.add("end", status="FINISHED", why="", time=now_ms())


# ---- other assets


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
        record = read_record(lake.model(stage, key))
        prefix = f"{stage.removeprefix('uq_')}/"
        own = {name.replace(prefix, "test/"): value for name, value in done.headline.items() if name.startswith(prefix)}
        if record is not None and own:
            head = tracking.open(tracking.stage_in_use(key, stage, record.provenance.data_version, record.version), log=log)
            head.metrics(own, step=step)
            head.tags(days)
            head.deliver(now=True)
    return run.url


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
