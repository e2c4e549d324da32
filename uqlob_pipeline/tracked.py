"""What each asset tells MLflow, in one place: parameters, inputs, metrics, artefacts and the links back to Dagster."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from uqlob_models.config import to_dict
from uqlob_pipeline.dataset import DatasetProfile
from uqlob_pipeline.evaluation_tables import MULTIPLIER
from uqlob_pipeline.evaluations import EvaluationDone, MultiplierDone, ReportDone
from uqlob_pipeline.forecasts import PredictionsDone
from uqlob_pipeline.lake import AssetDay, Lake, ModelKey, Provenance, file_hash
from uqlob_pipeline.model_inputs import Say
from uqlob_pipeline.model_registry import registered_name
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.stages import HEADS, HISTORY, RECORD, StagePlan, StageRecord, member_prefix, only_one, read_record
from uqlob_pipeline.tracking import JOURNAL, TrackedRun, Tracking, now_ms
from uqlob_pipeline.tracking_journal import RunIdentity
from uqlob_pipeline.training_plots import CONFUSION, CURVES, PARAMETERS
from uqlob_pipeline.training_runs import ALREADY, train_alone

if TYPE_CHECKING:
    import dagster as dg

CONTEXTS = {"train": "training", "validation": "selection"}


@dataclass(frozen=True)
class Origin:
    """The Dagster run in which something was made."""

    run_id: str
    partition: str
    asset: str

    @classmethod
    def of(cls, context: "dg.AssetExecutionContext") -> "Origin":
        partition = str(context.partition_key) if context.has_partition_key else ""
        return cls(context.run.run_id, partition, context.asset_key.to_user_string())

    def tags(self, tracking: Tracking, provenance: Provenance) -> dict[str, str]:
        said = {
            "dagster.run_id": self.run_id,
            "dagster.partition": self.partition,
            "dagster.asset": self.asset,
            "dagster.url": f"{tracking.dagster_ui}/runs/{self.run_id}",
            "code_version": provenance.code_version,
            "data_version": provenance.data_version,
            "settings_version": provenance.settings_version,
        }
        said["mlflow.note.content"] = (
            f"Made by [Dagster run {self.run_id[:8]}]({said['dagster.url']}), {self.asset} {self.partition}."
        )
        return said


# ---- stages


def train_tracked(
    tracking: Tracking, lake: Lake, plan: StagePlan, origin: Origin, *, fresh: bool, say: Say
) -> tuple[StageRecord, str | None]:
    """Train a stage with its MLflow run beside it; returns its record and the link to the run.

    A training that is finished is not done again, and not told again unless its telling was cut short.
    """
    with only_one(plan.home, say):
        done = plan.finished()
        identity = tracking.stage(plan.key, plan.stage, plan.data_version)
        if done is not None and not fresh and tracking.is_complete(identity, done.version):
            say(f"{plan}: {ALREADY.format(version=done.version)}")
            return done, tracking.url(identity)
        tracking.flush_pending(say)
        if fresh and (done is not None or plan.directory.exists()):
            identity = tracking.begin_afresh(plan.key, plan.stage, plan.data_version)
        with stage_under_way(tracking, lake, plan, identity, origin, say) as run:

            def tell(epoch: dict[str, float], member: int) -> None:
                run.add("epochs", prefix=member_prefix(member), epochs=[_numbers(epoch)], time=now_ms())
                run.deliver()

            # What is to be said of a finished training stands in the journal before the training counts as finished: a kill in
            # between leaves either a training to go on with, or a journal to deliver.
            record = train_alone(
                lake,
                tracking.profile,
                plan,
                fresh=fresh,
                say=say,
                on_epoch=tell,
                on_finished=lambda finished: stage_finished(run, plan, finished),
            )
        tracking.mark_complete(run, record.version)
        return record, run.url


@contextmanager
def stage_under_way(
    tracking: Tracking, lake: Lake, plan: StagePlan, identity: RunIdentity, origin: Origin, say: Say
) -> Iterator[TrackedRun]:
    """The MLflow run of a training, from its settings to how it ended; the same run when the training is resumed."""
    afresh = f"-{identity.training}" if identity.training > 1 else ""
    journal = plan.home / f"{plan.data_version}{afresh}-{JOURNAL}"
    with tracking.under_way(identity, journal, say) as run:
        profile = tracking.profile
        run.tags(origin.tags(tracking, plan.provenance))
        sections = {"labels": profile.labels.model_dump(mode="json"), "features": profile.features.model_dump(mode="json")}
        run.params({"training": to_dict(profile.training), "splits": profile.splits.model_dump(mode="json"), **sections})
        run.add("inputs", datasets=_datasets(lake, plan))
        run.deliver()
        yield run


def _numbers(epoch: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in epoch.items()}


def _datasets(lake: Lake, plan: StagePlan) -> list[dict[str, str]]:
    """One dataset a split: its days, its windows, and the version of everything that was read of them."""
    said = []
    for split, days in plan.inputs.days.items():
        versions = {name: version for name, version in plan.provenance.inputs.items() if name.startswith(f"{split}/")}
        source = {"tables": "event_features, window_labels", "symbol": plan.key.symbol, "horizon_s": plan.key.horizon_s}
        counts = [_windows(lake, plan.key, day) for day in days]
        profile = {
            "windows": sum(windows for windows, _ in counts),
            "labelled_windows": sum(labelled for _, labelled in counts),
            "days": [day.date.isoformat() for day in days],
            "versions": versions,
        }
        said.append(
            {
                "name": f"{plan.key} {split}",
                "digest": _digest(versions),
                "source": json.dumps(source),
                "profile": json.dumps(profile)[:65_000],
                "context": CONTEXTS[split],
            }
        )
    return said


def validation_version(profile: Profile, plan: StagePlan) -> str:
    """Changes with whatever the validation metric is measured on and weighted by: metrics compare where it is the same."""
    data = {name: version for name, version in plan.provenance.inputs.items() if name.startswith("validation/")}
    keys = ("training.loss.p", "training.loss.w_max", "training.head.context", "labels.latency_us")
    return _digest(data | {"settings": profile.settings_version(*keys)})


def _digest(versions: dict[str, str]) -> str:
    return hashlib.blake2b(json.dumps(versions, sort_keys=True).encode(), digest_size=8).hexdigest()


def _windows(lake: Lake, key: ModelKey, day: AssetDay) -> tuple[int, int]:
    """Windows of a day, and how many of them have a label at the model's horizon."""
    chosen = [("horizon_s", "=", key.horizon_s)]
    label = pq.read_table(lake.window_labels(day), columns=["label"], filters=chosen, partitioning=None)["label"]
    return len(label), len(label) - label.null_count


def stage_finished(run: TrackedRun, plan: StagePlan, record: StageRecord) -> None:
    """Whatever of the epochs was not told yet, what came out, and for a head its registered model."""
    ended = int((record.directory / HISTORY).stat().st_mtime * 1000)  # the same whenever it is told
    files = [member / "weights.safetensors" for member in record.members]
    weights = {run.tracking.place(path): file_hash(path) for path in files}
    for number, epochs in enumerate(record.histories(), 1):
        run.add("epochs", prefix=member_prefix(number), epochs=[_numbers(epoch) for epoch in epochs], time=ended)
    outcome = {f"best/{record.metric}": record.best_metric, "best/epoch": record.best_epoch, "steps": record.steps}
    run.metrics(outcome | {f"windows/{split}": count for split, count in record.windows.items()}, time=ended)
    run.tags({"uqlob.version": record.version, "uqlob.device": record.history()["device"]})
    for number, member in enumerate(record.members, 1):
        run.artifact(member, f"checkpoint/{member_prefix(number)}".rstrip("/"), weights=weights)
    for name in (CURVES, CONFUSION, PARAMETERS):
        run.artifact(record.directory / name, "figures" if name.endswith(".png") else "tables", weights=weights)
    run.artifact(plan.home / RECORD, "checkpoint", weights=weights)
    if plan.stage in HEADS:
        run.add(
            "model",
            name=registered_name(plan.key.symbol, plan.key.horizon_s, plan.objective, run.tracking.profile.name),
            profile=run.tracking.profile.name,
            validation=validation_version(run.tracking.profile, plan),
            objective=plan.objective,
            members=[run.tracking.place(member) for member in record.members],
            weights=weights,
            version=record.version,
            metric=record.metric,
            value=record.best_metric,
        )
    run.add("end", status="FINISHED", why="", time=now_ms())


# ---- what comes before and after the stages


def _tell(run: TrackedRun, origin: Origin, provenance: Provenance, *, deliver: bool) -> None:
    """Mark a run that is not under way by itself, and hand it over now or with the next delivery of anything."""
    run.tags(origin.tags(run.tracking, provenance))
    run.add("end", status="FINISHED", why="", time=now_ms())
    if deliver:
        run.deliver(now=True)
        run.tracking.flush_pending(run.say)


def fit_written(tracking: Tracking, symbol: str, path: Path, provenance: Provenance, origin: Origin) -> None:
    """A symbol's bins, scales or thresholds. Waits in the journal: importing MLflow takes longer than the fit."""
    run = tracking.open(tracking.fits(symbol))
    run.artifact(path, provenance.table)
    run.tags({f"data_version.{provenance.table}": provenance.data_version})
    _tell(run, origin, provenance, deliver=False)


def dataset_written(tracking: Tracking, written: DatasetProfile, origin: Origin, say: Say) -> str | None:
    run = tracking.open(tracking.dataset(), say=say)
    for path in written.artefacts():
        run.artifact(path, "dataset_profile")
    run.tags({f"dataset.{name}": value for name, value in written.parameters().items()})
    _tell(run, origin, written.provenance, deliver=True)
    return run.url


def predictions_written(tracking: Tracking, lake: Lake, key: ModelKey, done: PredictionsDone, origin: Origin) -> str | None:
    run = tracking.open(tracking.model(key))
    run.artifact(lake.predictions(key), "predictions")
    run.metrics({f"predictions/{split}": count for split, count in done.rows.items()})
    _tell(run, origin, done.provenance, deliver=False)
    return run.url


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
    _tell(run, origin, done.provenance, deliver=False)
    return run.url


def evaluation_written(
    tracking: Tracking, lake: Lake, key: ModelKey, done: EvaluationDone, figures: list[Path], origin: Origin, say: Say
) -> str | None:
    """Tables and figures on the model's run; its headline there and on the runs of the heads, so that these can be sorted."""
    run = tracking.open(tracking.model(key), say=say)
    for path in done.paths:
        run.artifact(path, f"gated_evaluation/{path.parent.parent.name}")
    for figure in figures:
        run.artifact(figure, "figures")
    run.metrics(done.headline)
    _tell(run, origin, done.provenance, deliver=True)
    for stage in HEADS:
        record = read_record(lake.model(stage, key))
        own = {name: value for name, value in done.headline.items() if f"uq_{name.split('/')[0]}" == stage}
        if record is not None and own:
            head = tracking.open(tracking.stage(key, stage, record.provenance.data_version), say=say)
            head.metrics({name.replace(f"{name.split('/')[0]}/", "test/"): value for name, value in own.items()})
            head.deliver(now=True)
    return run.url


def report_written(tracking: Tracking, done: ReportDone, origin: Origin, say: Say) -> str | None:
    run = tracking.open(tracking.report(), say=say)
    run.artifact(done.page.parent, "report")
    _tell(run, origin, done.provenance, deliver=True)
    return run.url
