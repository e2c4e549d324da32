"""What the training of a stage logs to MLflow: parameters, input datasets, epochs, artefacts and the registered model."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.file_hashes import file_hash, read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.models.stage_training import ALREADY, train_stage_unlocked
from uqlob_pipeline.models.stages import (
    HEADS,
    HISTORY,
    RECORD,
    SERVED_STATE,
    StagePlan,
    StageRecord,
    member_prefix,
)
from uqlob_pipeline.models.training_figures import CONFUSION, CURVES, PARAMETERS
from uqlob_pipeline.models.training_lock import training_lock
from uqlob_pipeline.tracking.client import OUTBOX, TrackedRun, Tracking, now_ms
from uqlob_pipeline.tracking.model_registry import registered_name
from uqlob_pipeline.tracking.origin import Origin

CONTEXTS = {"train": "training", "validation": "selection"}


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
            run.tags(origin.tags(tracking, plan.provenance))
            log_inputs(run, lake, [plan], model_params(plan.key) | {"head": plan.stage.removeprefix("uq_")})
            # The entries of a finished training are in the outbox before the training counts as finished: a kill in between
            # leaves either a training to resume or an outbox to deliver.
            record = train_stage_unlocked(
                lake,
                tracking.profile,
                plan,
                fresh=fresh,
                log=log,
                on_epoch=partial(log_epoch, run),
                on_finished=lambda finished: log_finished_stage(run, plan, finished),
            )
        tracking.mark_complete(run, record.version)
        return record, run.url


def log_inputs(run: TrackedRun, lake: Lake, plans: Sequence[StagePlan], params: dict[str, Any]) -> None:
    """The settings of a training, and the datasets that the plans read."""
    profile = run.tracking.profile
    sections = {name: getattr(profile, name).model_dump(mode="json") for name in ("splits", "labels", "features")}
    del sections["splits"]["test"]  # may be moved without a new training; evaluations say which days they are of
    run.params(params)
    run.params({"training": asdict(profile.training), **sections})
    run.add("inputs", datasets=[dataset for plan in plans for dataset in _datasets(lake, plan)])
    run.deliver()


def log_epoch(run: TrackedRun, epoch: dict[str, float], member: int) -> None:
    run.add("epochs", prefix=member_prefix(member), epochs=[_as_floats(epoch)], time=now_ms())
    run.deliver()


def log_epochs(run: TrackedRun, histories: list[list[dict[str, float]]], ended: int) -> None:
    """Every epoch of every member; MLflow keeps one point for each, however often it is logged."""
    for number, epochs in enumerate(histories, 1):
        run.add("epochs", prefix=member_prefix(number), epochs=[_as_floats(epoch) for epoch in epochs], time=ended)


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
    log_epochs(run, record.histories(), ended)
    outcome = {f"best/{record.metric}": record.best_metric, "best/epoch": record.best_epoch, "steps": record.steps}
    run.metrics(outcome | {f"windows/{split}": count for split, count in record.windows.items()}, time=ended)
    run.tags({"uqlob.version": record.version, "uqlob.device": record.history()["device"]})
    log_model(run, plan, record)
    run.add("end", status="FINISHED", why="", time=now_ms())


def log_model(run: TrackedRun, plan: StagePlan, record: StageRecord, task: str = "") -> None:
    """The files of a model, and its version in the registry if it is a head; `task` tells the models of a joint run apart."""
    files = [member / "weights.safetensors" for member in record.members]
    weights = {run.tracking.relative_path(path): file_hash(path) for path in files}
    for number, member in enumerate(record.members, 1):
        run.artifact(member, f"checkpoint/{task}{member_prefix(number)}".rstrip("/"), weights=weights)
    for name in (CURVES, CONFUSION, PARAMETERS):
        folder = "figures" if name.endswith(".png") else "tables"
        run.artifact(record.directory / name, f"{folder}/{task}".rstrip("/"), weights=weights)
    run.artifact(plan.home / RECORD, f"checkpoint/{task}".rstrip("/"), weights=weights)
    if plan.stage in HEADS:
        run.add(
            "model",
            name=registered_name(plan.key.symbol, plan.key.horizon_s, plan.objective, run.tracking.profile.name),
            profile=run.tracking.profile.name,
            validation=validation_version(run.tracking.profile, plan),
            objective=plan.objective,
            **served_files(run.tracking, record),
            weights=weights,
            version=record.version,
            metric=record.metric,
            value=record.best_metric,
            task=task_suffix(task),
        )


def served_files(tracking: Tracking, record: StageRecord) -> dict[str, Any]:
    """Where a served model finds its weights and what it learnt, relative to the lake."""
    state = record.directory / SERVED_STATE  # missing from trainings of older versions: the model then starts cold
    return {
        "members": [tracking.relative_path(member) for member in record.members],
        "state": tracking.relative_path(state) if state.is_file() else None,
    }


def task_suffix(task: str) -> str:
    """Of the tag that names a registered model of a joint run: `5s/regression/` becomes `.5s.regression`."""
    return "".join(f".{part}" for part in task.split("/") if part)
