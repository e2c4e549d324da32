"""The MLflow run of a joint training, with the epochs, models and scores of every symbol, horizon and output in it."""

import json
from itertools import product
from statistics import fmean

from uqlob_models.config import fingerprint
from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.models.joint_stage_training import train_joint_unlocked
from uqlob_pipeline.models.joint_stages import TASKS, JointPlan, JointStage, joint_data_version, joint_name, trained_together
from uqlob_pipeline.models.stage_training import ALREADY
from uqlob_pipeline.models.stages import HEADS, HISTORY, OBJECTIVE, Stage, StagePlan, StageRecord, read_record
from uqlob_pipeline.models.training_lock import training_lock
from uqlob_pipeline.tracking.client import OUTBOX, TrackedRun, Tracking, now_ms
from uqlob_pipeline.tracking.model_registry import registered_name
from uqlob_pipeline.tracking.origin import Origin
from uqlob_pipeline.tracking.outbox import RunIdentity
from uqlob_pipeline.tracking.training_runs import (
    log_epoch,
    log_epochs,
    log_inputs,
    log_model,
    served_files,
    task_suffix,
    validation_version,
)


def task_prefix(key: ModelKey, stage: Stage, universal: bool = False) -> str:
    """Where a model stands in a joint run, as in its validation metrics: `5s/regression/`, or `BTC-USD/5s/regression/`."""
    return f"{key.symbol}/" * universal + f"{key.horizon_s}s/{OBJECTIVE[stage]}/"


def version_of(records: list[StageRecord]) -> str:
    """Changes when any of the models of a joint training does."""
    return fingerprint({"versions": [record.version for record in records]})


def joint_in_use(tracking: Tracking, lake: Lake, symbol: str, stage: JointStage) -> RunIdentity | None:
    """The run of the joint training that made the models in use; None where one of them is missing."""
    keys = trained_together(tracking.profile, symbol)
    found = {f"{key} {task}": read_record(lake.model(task, key)) for task in TASKS[stage] for key in keys}
    records = {name: record for name, record in found.items() if record is not None}
    if len(records) < len(found):
        return None
    version = joint_data_version({name: record.provenance.data_version for name, record in records.items()})
    name = joint_name(tracking.profile, symbol)
    return tracking.stage_in_use(name, stage, version, version_of(list(records.values())))


def train_joint_tracked(
    tracking: Tracking, lake: Lake, plan: JointPlan, origin: Origin, *, fresh: bool, log: LogFn
) -> tuple[list[StageRecord], str | None]:
    """Train all models of a joint plan and log them to one MLflow run; returns the records by task and the link to the run.

    A resumed training continues its run. A finished training is not repeated, and logged again only if its upload is incomplete.
    """
    with training_lock(lake, plan.home, log):
        done = plan.finished()
        identity = tracking.stage(plan.symbol, plan.stage, plan.data_version)
        if done is not None and not (fresh or plan.is_unfinished) and tracking.is_complete(identity, version_of(done)):
            log(f"{plan}: {ALREADY.format(version=done[0].version)}")
            return done, tracking.url(identity)
        tracking.flush_pending(log)
        if fresh and (done is not None or plan.is_unfinished):
            identity = tracking.new_training(plan.symbol, plan.stage, plan.data_version)
        repetition = f"-{identity.training}" if identity.training > 1 else ""
        outbox = plan.home / f"{plan.data_version}{repetition}-{OUTBOX}"
        with tracking.start_run(identity, outbox, log) as run:
            run.tags(origin.tags(tracking, plan.tasks[0].provenance) | {"data_version": plan.data_version})
            horizons = [task for task in plan.tasks if task.stage == plan.tasks[0].stage]
            seconds = ", ".join(dict.fromkeys(str(task.key.horizon_s) for task in horizons))
            log_inputs(run, lake, horizons, {"symbol": ", ".join(plan.symbols), "horizons_s": seconds, "head": plan.stage})
            # As for a single stage: the entries are in the outbox before the first model is published.
            records = train_joint_unlocked(
                lake,
                tracking.profile,
                plan,
                fresh=fresh,
                log=log,
                on_epoch=lambda epoch, member: log_epoch(run, epoch, member),
                on_finished=lambda finished: log_finished_joint(run, plan, finished),
            )
        tracking.mark_complete(run, version_of(records))
        return records, run.url


def log_finished_joint(run: TrackedRun, plan: JointPlan, records: list[StageRecord]) -> None:
    """All epochs, and the final metrics, files and registered models of every task."""
    history = plan.directory_of(records[0].training) / HISTORY
    ended, content = int(history.stat().st_mtime * 1000), json.loads(history.read_text())
    log_epochs(run, [content["epochs"], *content["others"]], ended)
    outcome: dict[str, float] = {"best/epoch": records[0].best_epoch, "steps": records[0].steps}
    for task, record in zip(plan.tasks, records, strict=True):
        prefix = task_prefix(task.key, task.stage, plan.is_universal)
        outcome[f"{prefix}best/{record.metric}"] = record.best_metric
        outcome |= {f"{prefix}windows/{split}": count for split, count in record.windows.items()}
    run.metrics(outcome, time=ended)
    run.tags({"uqlob.version": version_of(records), "uqlob.device": content["device"]})
    for task, record in zip(plan.tasks, records, strict=True):
        log_model(run, task, record, task_prefix(task.key, task.stage, plan.is_universal))
    if plan.stage == "joint_heads":
        for symbol, head in product(plan.symbols, HEADS):
            both = zip(plan.tasks, records, strict=True)
            own = [(task, record) for task, record in both if task.key.symbol == symbol and task.stage == head]
            log_model_of_horizons(run, own, f"{symbol}/" * plan.is_universal)
    run.add("end", status="FINISHED", why="", time=now_ms())


def log_model_of_horizons(run: TrackedRun, models: list[tuple[StagePlan, StageRecord]], prefix: str) -> None:
    """One registered model of a symbol and output for all horizons, which are a parameter of its predictions.

    Its metric is the mean over the horizons. The models of the single horizons are registered beside it.
    """
    tracking, (first, best) = run.tracking, models[0]
    files = [member / "weights.safetensors" for _, record in models for member in record.members]
    run.add(
        "model",
        name=registered_name(first.key.symbol, None, first.objective, tracking.profile.name),
        profile=tracking.profile.name,
        validation=fingerprint({"horizons": [validation_version(tracking.profile, task) for task, _ in models]}),
        objective=first.objective,
        horizons=[{"horizon_s": task.key.horizon_s, **served_files(tracking, record)} for task, record in models],
        weights={tracking.relative_path(path): file_hash(path) for path in files},
        version=version_of([record for _, record in models]),
        metric=best.metric,
        value=fmean(record.best_metric for _, record in models),
        task=task_suffix(f"{prefix}{first.objective}"),
    )
