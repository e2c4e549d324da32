"""Trains all horizons of a symbol together, and leaves an ordinary model of each horizon and output.

torch is imported inside functions, to keep it out of the code server.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.models.inputs import LogFn, load_windows
from uqlob_pipeline.models.joint_stages import JointPlan
from uqlob_pipeline.models.stage_training import ALREADY, OnEpoch, ProgressLog, count_targets, write_record
from uqlob_pipeline.models.stages import HISTORY, StageRecord, member_directories, publish

if TYPE_CHECKING:
    from uqlob_models.joint_dataset import JointDataset
    from uqlob_models.outcomes import TrainingResult

JointObjective = Literal["encoder", "heads"]
OnJointFinished = Callable[[list[StageRecord]], None]


def train_joint_unlocked(
    lake: Lake,
    profile: Profile,
    plan: JointPlan,
    *,
    fresh: bool = False,
    log: LogFn,
    on_epoch: OnEpoch | None = None,
    on_finished: OnJointFinished | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[StageRecord]:
    """Train, and publish every model of a joint plan, in the order of its tasks; the caller holds `training_lock`.

    As `train_stage_unlocked`: a finished training returns at once, an interrupted one resumes, also where it was killed between
    publishing two of its models. `on_finished` is called just before the first of them is published.
    """
    from uqlob_models.checkpoints import generations
    from uqlob_models.joint_training import train_joint

    if fresh:
        plan.discard_unfinished()
        plan.directory.mkdir(parents=True, exist_ok=True)  # from here on it counts as started
    done = plan.finished()
    if done is not None and not fresh and not plan.is_unfinished:
        log(f"{plan}: {ALREADY.format(version=done[0].version)}")
        if on_finished is not None:
            on_finished(done)
        return done
    directory, dataset = plan.directory, load_joint_windows(lake, profile, plan, log)
    stage: JointObjective = "encoder" if plan.stage == "joint_encoder" else "heads"
    objective = plan.tasks[0].objective
    ensemble = 1 if stage == "encoder" else profile.training.ensemble
    results = []
    for number, member in enumerate(member_directories(directory, ensemble), 1):
        title = f"{plan}, member {number} of {ensemble}" if ensemble > 1 else str(plan)
        checkpoints = generations(member / "checkpoints")
        log(f"{title}" + ("" if not checkpoints else f": resuming from {checkpoints[0].name}"))
        progress = ProgressLog(title, number, profile.training.of_joint_training().stage(objective).epochs, log, on_epoch)
        started = time.monotonic()
        result = train_joint(
            stage,
            dataset,
            replace(profile.training, seed=profile.training.seed + number - 1),
            member,
            encoder=plan.encoder,
            on_epoch=progress.epoch,
            on_progress=progress.step,
            stop=stop,
        )
        log(f"{title}: {result.metric} {result.best_metric:.4f} in epoch {result.best_epoch}, {time.monotonic() - started:.0f} s")
        results.append(result)
    with atomic_path(directory / HISTORY, hashed=True) as temporary:
        others = [result.history for result in results[1:]]
        temporary.write_text(json.dumps({"device": results[0].device, "epochs": results[0].history, "others": others}, indent=1))
    records = _write_records(profile, plan, dataset, results)
    if on_finished is not None:
        on_finished(records)
    for record in records:
        publish(record)
    plan.clear_earlier(directory)
    return records


def load_joint_windows(lake: Lake, profile: Profile, plan: JointPlan, log: LogFn) -> "JointDataset":
    """The windows of the symbol with the labels of every horizon, or NotReady if a split has no target."""
    from uqlob_models.joint_dataset import JointDataset

    horizons = len(profile.evaluation.horizons_s)
    parts = [
        load_windows(lake, profile, task.inputs, log if number == 0 else None)
        for number, task in enumerate(plan.tasks[:horizons])
    ]
    dataset = JointDataset(tuple(parts))
    size = 0 if plan.stage == "joint_encoder" else profile.training.head.context
    for split in ("train", "selection"):
        if not len(dataset.targets(split, size)):
            raise NotReady(
                f"{plan}: no window of {split} has a label and {size} earlier windows as context at every horizon. "
                "Record longer or more days, or lower training.head.context or features.window"
            )
    return dataset


def _write_records(
    profile: Profile, plan: JointPlan, dataset: "JointDataset", results: list["TrainingResult"]
) -> list[StageRecord]:
    """Write the model of every task with its history and figures; returns their records, to be published."""
    from uqlob_models.joint_training import export_task, freeze_validation, load_joint

    shared = len(results) == 1 or profile.training.stage(plan.tasks[0].objective).freeze_encoder
    encode = (
        freeze_validation(load_joint(results[0].model), dataset).encode if shared else None
    )  # members without a frozen encoder differ
    records = []
    for number, task in enumerate(plan.numbered()):
        horizon = number % len(dataset.horizons)
        places = zip(results, member_directories(task.directory, len(results)), strict=True)
        own = [export_task(result, dataset, horizon, task.objective, place) for result, place in places]
        one = dataset.horizons[horizon]
        records.append(write_record(profile, task, one, own, count_targets(profile, task, one), encode))
    return records
