"""One training loop for the three objectives. It can be stopped anywhere, by a signal or a power cut, and goes on bit for bit.

The place in the training is the step; data order and learning rates follow from it and the seed. What else there is
(weights, moments, random state) the learner hands over to be saved.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from uqlob_models.checkpoints import CheckpointError, TrainingState, read_newest_generation, save_model, write_generation
from uqlob_models.config import Objective, TrainingConfig, to_dict
from uqlob_models.dataset import WindowDataset
from uqlob_models.learner import Learner
from uqlob_models.objectives import SELECTION_METRIC, better, validate
from uqlob_models.outcomes import NonFiniteLoss, Progress, TrainingInterrupted, TrainingResult
from uqlob_models.sampling import Batch, Rows, Sampler, Sampling, Selection, assemble, block_rows, instance_rows
from uqlob_models.windows import file_version

__all__ = ["NonFiniteLoss", "Progress", "TrainingInterrupted", "TrainingResult", "identity", "train"]

log = logging.getLogger(__name__)

HEALTH_CHECK_EVERY = 50  # steps, on CUDA: how often the host asks whether all was finite. On the CPU it asks at every step.
READ_AHEAD = 2  # batches
REPORT_EVERY_S = 5.0


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
) -> TrainingResult:
    """Trains on the dataset's `train` split, selects on its `selection` split, and leaves the best model in `directory/best`.

    `encoder` is the directory of a pretrained encoder to start fine-tuning from. Where `directory` holds a state of the same
    training, this goes on from it, and returns at once if it was complete; a state of another configuration or of other data is
    refused unless `fresh` throws it away. SIGINT, SIGTERM or `stop` returning true save the state and raise TrainingInterrupted.
    """
    if fresh:
        for part in ("checkpoints", "best"):
            shutil.rmtree(directory / part, ignore_errors=True)
    training = _Training(objective, dataset, config, directory, encoder)
    with _signals() as signalled:
        return training.run(on_epoch, on_progress, lambda: signalled.is_set() or (stop is not None and stop()))


def identity(objective: Objective, dataset: WindowDataset, config: TrainingConfig, encoder: Path | None) -> dict[str, Any]:
    """What a training state must agree on to be continued: whatever changes the result, and nothing else."""
    settings = to_dict(config)
    stage = {key: value for key, value in settings[objective].items() if key != "checkpoint_every"}
    kept: tuple[str, ...] = ("encoder", "seed", "bf16", "store_dtype")
    if objective != "pretraining":
        kept += ("head", "test_seed", "mirror_predictions")
    if objective == "regression":
        kept += ("loss",)
    agreed = {
        "objective": objective,
        "data_version": dataset.data_version(),
        "encoder_weights": file_version(encoder / "weights.safetensors") if encoder else None,
        "stage": stage,
        **{key: settings[key] for key in kept},
    }
    plain: dict[str, Any] = json.loads(json.dumps(agreed))  # as it will be read back: lists for tuples
    return plain


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Turns SIGINT and SIGTERM into an event for as long as the block lasts. Signals reach the main thread only."""
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


class _Training:
    """One training and its place on disk."""

    def __init__(
        self, objective: Objective, dataset: WindowDataset, config: TrainingConfig, directory: Path, encoder: Path | None
    ) -> None:
        self.objective, self.dataset, self.config, self.directory = objective, dataset, config, directory
        self.stage = config.stage(objective)
        size = 0 if objective == "pretraining" else config.head.context
        self.selection_targets = dataset.targets("selection", size)
        if len(self.selection_targets) == 0:
            raise ValueError("no validation targets: no window of the selection half has a label and a full context")
        sampling: Sampling = "windows" if objective == "pretraining" else self.stage.sampling
        self.rows_of = block_rows if sampling == "blocks" else instance_rows
        self.sampler = Sampler(dataset.targets("train", size), self.stage, sampling, config.seed)
        self.total_steps = self.sampler.steps * self.stage.epochs
        self.context = dataset.context(size)
        self.context_y = dataset.context_labels(config.head.shuffle_context_labels, config.test_seed)
        self.learner = Learner(objective, dataset, config, self.total_steps, encoder)
        self.identity = identity(objective, dataset, config, encoder)
        self.epoch = self.step_in_epoch = self.step = 0
        self.best_metric: float | None = None
        self.best_epoch = 0
        self.finished: str | None = None
        self.history: list[dict[str, float]] = []
        self.checkpoint: Path | None = None
        self.windows_seen = 0
        self.step_seconds = self.validation_seconds = 0.0  # as last measured: what the time left is reckoned from
        state = read_newest_generation(directory / "checkpoints")
        if state is not None:
            self._resume(state)

    # --- state -----------------------------------------------------------------------------------------------------

    PLACE = ("epoch", "step_in_epoch", "step", "best_metric", "best_epoch", "finished", "history")
    PACE = ("step_seconds", "validation_seconds")

    def save(self) -> Path:
        self._stop_if_not_finite()
        about = {"identity": self.identity, **{name: getattr(self, name) for name in (*self.PLACE, *self.PACE)}}
        weights, tensors = self.learner.weights(), self.learner.tensors()
        self.checkpoint = write_generation(self.directory / "checkpoints", self.step, weights, tensors, about)
        return self.checkpoint

    def _resume(self, state: TrainingState) -> None:
        saved = state.about["identity"]
        if saved != self.identity:
            keys = sorted(key for key in {*saved, *self.identity} if saved.get(key) != self.identity.get(key))
            raise CheckpointError(
                f"{state.path} belongs to another training (different: {', '.join(keys)}); train afresh to replace it, "
                "or give this training a directory of its own"
            )
        self.learner.restore(state.weights, state.tensors)
        for name in self.PLACE:
            setattr(self, name, state.about[name])
        for name in self.PACE:
            setattr(self, name, state.about.get(name, 0.0))
        self.checkpoint = state.path
        log.info("resuming %s at step %d of %d", self.objective, self.step, self.total_steps)

    def _stop_if_not_finite(self) -> None:
        bad = self.learner.first_bad_step()
        if bad is None:
            return
        epoch, step_in_epoch = divmod(bad, self.sampler.steps)
        rows = self._rows(self.sampler.epoch(epoch)[step_in_epoch])
        raise NonFiniteLoss(bad, self.dataset.describe(np.unique(rows.windows)), self.checkpoint)

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(
        self,
        on_epoch: Callable[[dict[str, float]], None] | None,
        on_progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool],
    ) -> TrainingResult:
        while self.finished is None:
            started = time.monotonic()
            self._train_epoch(on_progress, stop)
            self._stop_if_not_finite()
            seconds = time.monotonic() - started
            self.epoch, self.step_in_epoch = self.epoch + 1, 0
            record = self._close_epoch(seconds)
            self.history.append(record)
            checkpoint = self.save()
            log.info("%s epoch %d/%d %s", self.objective, self.epoch, self.stage.epochs, _readable(record))
            if on_epoch is not None:
                on_epoch(record)
            if stop():  # after the last epoch too: what was cancelled must not pass for finished; going on then returns at once
                raise TrainingInterrupted(self.step, checkpoint)
        if self.best_metric is None:
            raise RuntimeError(f"{SELECTION_METRIC[self.objective]} was not defined on any validation: there is no best model")
        return TrainingResult(
            objective=self.objective,
            model=self.directory / "best",
            metric=SELECTION_METRIC[self.objective],
            best_metric=self.best_metric,
            best_epoch=self.best_epoch,
            epochs=self.epoch,
            steps=self.step,
            stopped_early=self.finished == "patience",
            device=self.learner.device.type,
            history=self.history,
        )

    def _train_epoch(self, on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool]) -> None:
        selections = self.sampler.epoch(self.epoch)
        check_every = HEALTH_CHECK_EVERY if self.learner.device.type == "cuda" else 1
        started = reported = time.monotonic()
        first, self.windows_seen = self.step, 0
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="windows") as reader:
            ahead = deque(
                reader.submit(self._batch, selections[i]) for i in self._steps_ahead(self.step_in_epoch, len(selections))
            )
            while self.step_in_epoch < len(selections):
                batch = ahead.popleft().result()
                following = self.step_in_epoch + READ_AHEAD
                if following < len(selections):
                    ahead.append(reader.submit(self._batch, selections[following]))
                self.learner.learn(batch, self.step)
                self.windows_seen += len(batch.tokens)
                self.step += 1
                self.step_in_epoch += 1
                if self.step % check_every == 0:
                    self._stop_if_not_finite()
                if stop():
                    for future in ahead:
                        future.cancel()
                    raise TrainingInterrupted(self.step, self.save())
                if self.step % self.stage.checkpoint_every == 0:
                    self.save()
                now = time.monotonic()
                elapsed = now - started
                self.step_seconds = elapsed / (self.step - first)
                if on_progress is not None and now - reported >= REPORT_EVERY_S:
                    reported = now
                    speed = self.windows_seen / elapsed
                    on_progress(Progress(self.step, self.total_steps, self.epoch, speed, self._seconds_left()))

    @staticmethod
    def _steps_ahead(first: int, steps: int) -> range:
        return range(first, min(first + READ_AHEAD, steps))

    def _rows(self, selection: Selection) -> Rows:
        return self.rows_of(selection, self.context.windows(selection.targets))

    def _batch(self, selection: Selection) -> Batch:
        batch = assemble(self.dataset, self._rows(selection), selection, self.context_y)
        return batch.pinned() if self.learner.device.type == "cuda" else batch

    def _close_epoch(self, seconds: float) -> dict[str, float]:
        """Validates, keeps the model if it is the best so far, and decides whether this was the last epoch."""
        record: dict[str, float] = {"epoch": self.epoch, "step": self.step}
        record |= {f"train/{name}": value for name, value in self.learner.take_averages().items()}
        record |= {f"rate/{name}": rate for name, rate in self.learner.rates(self.step - 1).items()}
        is_last = self.epoch >= self.stage.epochs
        if self._validates(self.epoch):
            started = time.monotonic()
            found = validate(self.learner.model, self.dataset, self.selection_targets, self.config)
            self.validation_seconds = time.monotonic() - started
            record |= {f"validation/{name}": value for name, value in found.items()}
            metric = found[SELECTION_METRIC[self.objective]]
            if (is_last or self.epoch >= self.stage.select_from) and better(metric, self.best_metric):
                self.best_metric, self.best_epoch = metric, self.epoch
                self._keep_best()
        record |= {
            "seconds": seconds,
            "windows_per_second": self.windows_seen / max(seconds, 1e-9),
            "eta_seconds": self._seconds_left(),
        }
        if is_last:
            self.finished = "epochs"
        elif self.stage.patience and self._validations_in_vain() >= self.stage.patience:
            self.finished = "patience"
        return record

    def _validates(self, epoch: int) -> bool:
        return epoch % self.stage.validate_every == 0 or epoch >= self.stage.epochs

    def _seconds_left(self) -> float:
        """Without stopping early."""
        validations = sum(self._validates(epoch) for epoch in range(self.epoch + 1, self.stage.epochs + 1))
        return self.step_seconds * (self.total_steps - self.step) + self.validation_seconds * validations

    def _validations_in_vain(self) -> int:
        """How many there were since the best, or since a model may be kept at all."""
        every = self.stage.validate_every
        return self.epoch // every - max(self.best_epoch, self.stage.select_from - 1) // every

    def _keep_best(self) -> None:
        save_model(
            self.directory / "best",
            self.learner.model,
            self.objective,
            self.config,
            step=self.step,
            data_version=self.dataset.data_version(),
            y_ref=self.dataset.y_ref,
            epoch=self.epoch,
            metric=SELECTION_METRIC[self.objective],
            value=self.best_metric,
        )


def _readable(record: dict[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in record.items() if name not in ("epoch", "step"))
