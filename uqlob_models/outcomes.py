"""How a training can end, and what it tells while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from uqlob_models.config import Objective


class TrainingInterrupted(RuntimeError):
    """Training was asked to stop, and has saved its state. The same call goes on from there."""

    def __init__(self, step: int, checkpoint: Path) -> None:
        super().__init__(f"training stopped after step {step}; state saved in {checkpoint}; start it again to go on")
        self.step, self.checkpoint = step, checkpoint


class NonFiniteLoss(RuntimeError):
    """A loss or a gradient was not finite. Nothing after the last checkpoint is kept."""

    def __init__(self, step: int, windows: list[str], checkpoint: Path | None) -> None:
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"
        shown = ", ".join(windows[:8]) + (f" and {len(windows) - 8} more" if len(windows) > 8 else "")
        super().__init__(
            f"loss or gradient not finite at step {step}, on windows {shown}; {kept}. Look at the features of these windows"
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
    """`history` has one flat record an epoch; `model` is the directory of the best checkpoint, for `load_model`."""

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
