"""The training loop, for the three objectives: pretraining the encoder, and fine-tuning a regression or classification head.

A step (loss, gradient, update) is in `learner.py`, its batches in `sampling.py`, the metrics of an epoch in `validation.py`.
Training can be stopped at any step, by a signal or a power cut, and continues to the same bits: batches and learning rates
follow from the step number and the seed, and a checkpoint holds the rest (weights, optimiser moments, random state).
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from uqlob_models.checkpoints import CheckpointError, TrainingState, read_newest_generation, save_model, write_generation
from uqlob_models.config import NO_EFFECT_ON_WEIGHTS, Objective, StageConfig, TrainingConfig
from uqlob_models.dataset import WindowDataset
from uqlob_models.learner import Learner
from uqlob_models.sampling import Batches
from uqlob_models.training_result import NonFiniteLoss, Progress, TrainingInterrupted, TrainingResult
from uqlob_models.validation import SELECTION_METRIC, validate
from uqlob_models.window_store import file_version

log = logging.getLogger(__name__)

FINITE_CHECK_EVERY = 50  # steps, on CUDA, where the check waits for the device. On the CPU every step is checked.
REPORT_EVERY_S = 5.0


@dataclass
class Position:
    """How far a training has come. Saved with the weights."""

    epoch: int = 0  # finished epochs
    step_in_epoch: int = 0
    step: int = 0
    best_metric: float | None = None
    best_epoch: int = 0
    finished: str | None = None  # "epochs" or "patience"
    history: list[dict[str, float]] = field(default_factory=list)
    step_seconds: float = 0.0  # as last measured, for the time left
    validation_seconds: float = 0.0


@dataclass(frozen=True)
class TrainingHooks:
    """The functions that differ between single-horizon and joint training."""

    batches: Callable[..., Batches]
    learner: Callable[..., Learner]
    metric: Callable[[Objective], str]  # the name of the selection metric
    validate: Callable[[Any, Any], dict[str, float]]  # (learner, dataset)
    save: Callable[[Path, Any, Any, int, dict[str, Any]], None]  # (directory, learner, dataset, step, about)


def validate_one(learner: Learner, dataset: WindowDataset) -> dict[str, float]:
    targets = dataset.targets("selection", 0 if learner.objective == "pretraining" else learner.config.head.context)
    encode = learner.frozen.encode if learner.frozen else None
    return validate(learner.model, dataset, targets, learner.config, encode)


def save_one(directory: Path, learner: Learner, dataset: WindowDataset, step: int, about: dict[str, Any]) -> None:
    version, y_ref = dataset.data_version(), dataset.y_ref
    save_model(directory, learner.model, learner.objective, learner.config, step=step, data_version=version, y_ref=y_ref, **about)


SEPARATE = TrainingHooks(Batches, Learner, SELECTION_METRIC.__getitem__, validate_one, save_one)


def train(
    objective: Objective,
    dataset: WindowDataset,
    config: TrainingConfig,
    directory: Path,
    *,
    encoder: Path | None = None,
    fresh: bool = False,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    hooks: TrainingHooks = SEPARATE,
) -> TrainingResult:
    """Trains on the dataset's `train` split, selects on its `selection` split, and leaves the best model in `directory/best`.

    `encoder` is the directory of a pretrained encoder to fine-tune. A checkpoint of the same training in `directory` is
    continued; if that training was complete, its result is returned. A checkpoint of other settings or data is an error, unless
    `fresh` deletes it. SIGINT, SIGTERM or `stop` returning true save a checkpoint and raise TrainingInterrupted.
    """
    if fresh:
        for part in ("checkpoints", "best"):
            shutil.rmtree(directory / part, ignore_errors=True)

    # Data
    stage, metric_name = config.stage(objective), hooks.metric(objective)
    selection_targets = dataset.targets("selection", 0 if objective == "pretraining" else config.head.context)
    if len(selection_targets) == 0:
        raise ValueError("no validation targets: no window of the selection half has a label and a full context")
    batches = hooks.batches(objective, dataset, config)
    total_steps = batches.steps_per_epoch * stage.epochs

    # Model and optimiser
    learner = hooks.learner(objective, dataset, config, total_steps, encoder)
    on_cuda = learner.device.type == "cuda"
    finite_check_every = FINITE_CHECK_EVERY if on_cuda else 1

    # Checkpoints
    own_identity = identity(objective, dataset, config, encoder)
    position, checkpoint = Position(), None
    saved = read_newest_generation(directory / "checkpoints")
    if saved is not None:
        position, checkpoint = _position_of(saved, own_identity), saved.path
        learner.restore(saved.weights, saved.tensors)
        log.info("resuming %s at step %d of %d", objective, position.step, total_steps)

    def require_finite() -> None:
        bad_step = learner.first_bad_step()
        if bad_step is not None:
            raise NonFiniteLoss(bad_step, dataset.describe(batches.windows_of_step(bad_step)), checkpoint)

    def save() -> Path:
        nonlocal checkpoint
        require_finite()
        about = {"identity": own_identity, **asdict(position)}
        weights, tensors = learner.weights(), learner.tensors()
        checkpoint = write_generation(directory / "checkpoints", position.step, weights, tensors, about)
        return checkpoint

    with _stop_signals() as signalled:
        while position.finished is None:
            # Train one epoch
            started = reported = time.monotonic()
            first_step, windows_seen = position.step, 0
            with closing(batches.read(position.epoch, position.step_in_epoch, pinned=on_cuda)) as epoch_batches:
                for batch in epoch_batches:
                    learner.learn(batch, position.step)
                    position.step += 1
                    position.step_in_epoch += 1
                    windows_seen += len(batch.windows)
                    if position.step % finite_check_every == 0:
                        require_finite()
                    if signalled.is_set() or (stop is not None and stop()):
                        raise TrainingInterrupted(position.step, save())
                    if position.step % stage.checkpoint_every == 0:
                        save()
                    now = time.monotonic()
                    position.step_seconds = (now - started) / (position.step - first_step)
                    if on_progress is not None and now - reported >= REPORT_EVERY_S:
                        reported = now
                        left = _seconds_left(position, stage, total_steps)
                        on_progress(Progress(position.step, total_steps, position.epoch, windows_seen / (now - started), left))
            require_finite()
            seconds = time.monotonic() - started
            position.epoch, position.step_in_epoch = position.epoch + 1, 0
            record: dict[str, float] = {"epoch": position.epoch, "step": position.step}
            record |= {f"train/{name}": value for name, value in learner.take_averages().items()}
            record |= {f"rate/{name}": rate for name, rate in learner.rates(position.step - 1).items()}

            # Validate, and keep the best model
            is_last = position.epoch >= stage.epochs
            if _validates(position.epoch, stage):
                started = time.monotonic()
                found = hooks.validate(learner, dataset)
                position.validation_seconds = time.monotonic() - started
                record |= {f"validation/{name}": value for name, value in found.items()}
                metric = found[metric_name]
                is_best = not math.isnan(metric) and (position.best_metric is None or metric > position.best_metric)
                if is_best and (is_last or position.epoch >= stage.select_from):
                    position.best_metric, position.best_epoch = metric, position.epoch
                    about = {"epoch": position.epoch, "metric": metric_name, "value": metric}
                    hooks.save(directory / "best", learner, dataset, position.step, about)
            record["seconds"] = seconds
            record["windows_per_second"] = windows_seen / max(seconds, 1e-9)
            record["eta_seconds"] = _seconds_left(position, stage, total_steps)

            # Stop early, save and report
            if is_last:
                position.finished = "epochs"
            elif stage.patience:  # counted from the best epoch, or from the first whose model may be kept
                counted_from = max(position.best_epoch, stage.select_from - 1)
                if position.epoch // stage.validate_every - counted_from // stage.validate_every >= stage.patience:
                    position.finished = "patience"
            position.history.append(record)
            saved_at = save()
            values = " ".join(f"{name}={value:.4g}" for name, value in record.items() if name not in ("epoch", "step"))
            log.info("%s epoch %d/%d %s", objective, position.epoch, stage.epochs, values)
            if on_epoch is not None:
                on_epoch(record)
            if signalled.is_set() or (stop is not None and stop()):  # after the last epoch too; the next call returns its result
                raise TrainingInterrupted(position.step, saved_at)

    if position.best_metric is None:
        raise RuntimeError(f"{metric_name} was not defined on any validation: there is no best model")
    return TrainingResult(
        objective=objective,
        model=directory / "best",
        metric=metric_name,
        best_metric=position.best_metric,
        best_epoch=position.best_epoch,
        epochs=position.epoch,
        steps=position.step,
        stopped_early=position.finished == "patience",
        device=learner.device.type,
        history=position.history,
    )


def identity(objective: Objective, dataset: WindowDataset, config: TrainingConfig, encoder: Path | None) -> dict[str, Any]:
    """The settings and data that must match for a checkpoint to be resumed: those that change the result."""
    settings = asdict(config)
    stage = {key: value for key, value in settings[objective].items() if key not in NO_EFFECT_ON_WEIGHTS}
    kept: tuple[str, ...] = ("encoder", "seed", "bf16", "store_dtype")
    if objective != "pretraining":
        kept += ("head", "test_seed", "mirror_predictions")
    if objective == "regression":
        kept += ("loss",)
    found = {
        "objective": objective,
        "data_version": dataset.data_version(),
        "encoder_weights": file_version(encoder / "weights.safetensors") if encoder else None,
        "stage": stage,
        **{key: settings[key] for key in kept},
    }
    as_read_back: dict[str, Any] = json.loads(json.dumps(found))  # lists for tuples
    return as_read_back


def _position_of(saved: TrainingState, own_identity: dict[str, Any]) -> Position:
    """The position that a checkpoint holds. An error if it belongs to another training."""
    about = dict(saved.about)
    other = about.pop("identity")
    if other != own_identity:
        keys = sorted(key for key in {*other, *own_identity} if other.get(key) != own_identity.get(key))
        raise CheckpointError(
            f"{saved.path} belongs to another training (different: {', '.join(keys)}): train afresh to replace it, "
            "or use another directory"
        )
    return Position(**about)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Turns SIGINT and SIGTERM into an event within the block. Signals reach the main thread only."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.signal(number, lambda *_: event.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _validates(epoch: int, stage: StageConfig) -> bool:
    return epoch % stage.validate_every == 0 or epoch >= stage.epochs


def _seconds_left(position: Position, stage: StageConfig, total_steps: int) -> float:
    """Without stopping early."""
    validations = sum(_validates(epoch, stage) for epoch in range(position.epoch + 1, stage.epochs + 1))
    return position.step_seconds * (total_steps - position.step) + position.validation_seconds * validations
