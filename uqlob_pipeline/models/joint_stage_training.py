"""Trains all horizons of a symbol, or all symbols and horizons, together; leaves an ordinary model of each and output.

torch is imported inside functions, to keep it out of the code server.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.staleness import NotReady
from uqlob_pipeline.models.inputs import load_windows
from uqlob_pipeline.models.joint_stages import JointPlan
from uqlob_pipeline.models.stage_training import ALREADY, OnEpoch, count_targets, train_members, write_record
from uqlob_pipeline.models.stages import HISTORY, Stage, StageRecord, member_directories, publish

if TYPE_CHECKING:
    from uqlob_models.joint_dataset import JointDataset
    from uqlob_models.joint_model import JointEncoder, JointModel
    from uqlob_models.training_result import TrainingResult

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
    from uqlob_models.joint_training import train_joint
    from uqlob_models.universal_dataset import UniversalDataset
    from uqlob_models.universal_training import train_universal

    if fresh:
        plan.discard_unfinished()
        plan.directory.mkdir(parents=True, exist_ok=True)  # from here on it counts as started
    done = plan.finished()
    if done is not None and not fresh and not plan.is_unfinished:
        log(f"{plan}: {ALREADY.format(version=done[0].version)}")
        if on_finished is not None:
            on_finished(done)
        return done
    directory, datasets = plan.directory, load_joint_windows(lake, profile, plan, log)
    train: Callable[..., Any] = train_universal if plan.is_universal else train_joint
    dataset = UniversalDataset(datasets) if plan.is_universal else datasets[plan.symbol]
    stage: JointObjective = "encoder" if plan.stage == "joint_encoder" else "heads"
    objective = plan.tasks[0].objective
    ensemble = 1 if stage == "encoder" else profile.training.ensemble
    epochs = profile.training.of_joint_training().stage(objective).epochs
    part = partial(train, stage, dataset, encoder=plan.encoder, stop=stop)
    results = train_members(str(plan), "", directory, profile.training, ensemble, epochs, part, log, on_epoch)
    with atomic_path(directory / HISTORY, hashed=True) as temporary:
        others = [result.history for result in results[1:]]
        temporary.write_text(json.dumps({"device": results[0].device, "epochs": results[0].history, "others": others}, indent=1))
    records = _write_records(profile, plan, datasets, results)
    if on_finished is not None:
        on_finished(records)
    for record in records:
        publish(record)
    plan.clear_earlier(directory)
    return records


def load_joint_windows(lake: Lake, profile: Profile, plan: JointPlan, log: LogFn) -> dict[str, "JointDataset"]:
    """By symbol, its windows with the labels of every horizon, or NotReady if a split of a symbol has no target."""
    from uqlob_models.joint_dataset import JointDataset

    size = 0 if plan.stage == "joint_encoder" else profile.training.head.context
    datasets = {}
    for symbol in plan.symbols:
        tasks = [task for task in plan.tasks if task.key.symbol == symbol and task.stage == plan.tasks[0].stage]
        parts = [load_windows(lake, profile, task.inputs, None if number else log) for number, task in enumerate(tasks)]
        datasets[symbol] = JointDataset(tuple(parts))
        for split in ("train", "selection"):
            if not len(datasets[symbol].targets(split, size)):
                raise NotReady(
                    f"{plan}: no {split} window of {symbol} has a label and {size} earlier windows as context at every horizon. "
                    "Record longer or more days, or lower training.head.context or features.window"
                )
    return datasets


def _write_records(
    profile: Profile, plan: JointPlan, datasets: dict[str, "JointDataset"], results: list["TrainingResult"]
) -> list[StageRecord]:
    """Write the model of every task with its history and figures; returns their records in the tasks' order, to be published."""
    from uqlob_models.joint_training import export_model, freeze_validation

    # Members without a frozen encoder differ in it.
    shared = len(results) == 1 or profile.training.stage(plan.tasks[0].objective).freeze_encoder
    records: dict[tuple[Stage, ModelKey], StageRecord] = {}
    for symbol, dataset in datasets.items():
        models = [_model_of_symbol(plan, result, dataset) for result in results]
        prefix = f"{symbol}/" if plan.is_universal else ""
        encode = freeze_validation(models[0], dataset).encode if shared else None
        for task in plan.numbered():
            if task.key.symbol != symbol:
                continue
            horizon = dataset.horizons_s.index(task.key.horizon_s)
            places = zip(models, results, member_directories(task.directory, len(results)), strict=True)
            own = [
                export_model(model, result, dataset, horizon, task.objective, place, prefix) for model, result, place in places
            ]
            one = dataset.horizons[horizon]
            counts = count_targets(profile, task, one)
            records[task.stage, task.key] = write_record(profile, task, one, own, counts, encode)
    return [records[task.stage, task.key] for task in plan.tasks]


def _model_of_symbol(plan: JointPlan, result: "TrainingResult", dataset: "JointDataset") -> "JointEncoder | JointModel":
    """The joint model that a training left, with the statistics of the symbol of these windows."""
    from uqlob_models.joint_training import load_joint
    from uqlob_models.universal_training import for_symbol, load_universal

    if plan.is_universal:
        return for_symbol(load_universal(result.model), dataset)
    return load_joint(result.model)
