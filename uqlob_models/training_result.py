"""The results, errors and progress of a training. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from uqlob_models.config import Objective


class TrainingInterrupted(RuntimeError):
    """Training was stopped and has saved a checkpoint. The same call continues from it."""

    def __init__(self, step: int, checkpoint: Path) -> None:
        super().__init__(f"training stopped after step {step}; checkpoint saved in {checkpoint}; start it again to continue")
        self.step, self.checkpoint = step, checkpoint


class NonFiniteLoss(RuntimeError):
    """A loss or a gradient was not finite. Steps after the last checkpoint are lost."""

    def __init__(self, step: int, windows: list[str], checkpoint: Path | None) -> None:
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"
        shown = ", ".join(windows[:8]) + (f" and {len(windows) - 8} more" if len(windows) > 8 else "")
        super().__init__(
            f"loss or gradient not finite at step {step}, on windows {shown}; {kept}. Check the features of these windows"
        )
        self.step, self.windows, self.checkpoint = step, windows, checkpoint


@dataclass(frozen=True)
class Progress:
    step: int
    total_steps: int
    epoch: int
    windows_per_second: float
    eta_seconds: float


@dataclass(frozen=True)
class TrainingResult:
    """`history` has one record per epoch; `model` is the directory of the best model, for `load_model`."""

    objective: Objective
    model: Path
    metric: str
    best_metric: float
    best_epoch: int
    epochs: int
    steps: int
    stopped_early: bool
    device: str
    history: list[dict[str, float]] = field(repr=False)
