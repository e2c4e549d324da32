"""Joint trainings on disk: which one a stage needs now, and which finished models came of it.

With `training.joint = "horizons"` the encoders of all horizons of a symbol are one training, and both heads of all horizons are
another; with `"universal"`, those of all symbols and horizons. Such a training has a directory of its own (checkpoints, the best
joint model). At its end it leaves an ordinary model for each symbol, horizon and output where a separate training would have left
it, so that nothing after it has to know.

The models of a joint training carry the same training number. Where their numbers differ, the training with the highest was
killed while its models were being published, and is not finished.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from uqlob_models.config import fingerprint
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.models.stages import HEADS, Stage, StagePlan, StageRecord, plan_stage

JointStage = Literal["joint_encoder", "joint_heads"]
UNIVERSAL = "universal"  # stands where the symbol of a joint training would
TASKS: dict[JointStage, tuple[Stage, ...]] = {"joint_encoder": ("encoder",), "joint_heads": HEADS}


def joint_data_version(of_tasks: dict[str, str]) -> str:
    """By the data versions of all models that come of a joint training, each named such as `BTC-USD 5s uq_regression`."""
    return fingerprint(of_tasks)


def joint_stage(stage: Stage) -> JointStage:
    """The joint training that a stage is part of."""
    return "joint_encoder" if stage == "encoder" else "joint_heads"


@dataclass(frozen=True)
class JointPlan:
    """The joint training that is needed now: the plans of all models that come of it, by stage, then symbol, then horizon."""

    symbol: str  # or UNIVERSAL
    stage: JointStage
    tasks: tuple[StagePlan, ...]
    home: Path

    @property
    def data_version(self) -> str:
        return joint_data_version({str(task): task.data_version for task in self.tasks})

    @property
    def encoder(self) -> Path | None:
        """The pretrained encoder to fine-tune. Those of all horizons differ in their logits only, which no head reads; those of
        the symbols of a universal training also in their statistics, and the first symbol's is taken."""
        return self.tasks[0].encoder

    @property
    def is_universal(self) -> bool:
        return self.symbol == UNIVERSAL

    @property
    def symbols(self) -> list[str]:
        return list(dict.fromkeys(task.key.symbol for task in self.tasks))

    def _numbers(self) -> set[int]:
        """The training numbers of the finished models, 0 for a missing one."""
        return {0 if (record := task.finished()) is None else record.training for task in self.tasks}

    @property
    def training(self) -> int:
        """The number of the training that is unfinished or would be started next."""
        numbers = self._numbers()
        return max(numbers) + 1 if len(numbers) == 1 else max(numbers)

    @property
    def directory(self) -> Path:
        """Of the training that is unfinished or would be started next."""
        return self.directory_of(self.training)

    def directory_of(self, number: int) -> Path:
        return self.home / (self.data_version if number == 1 else f"{self.data_version}-{number}")

    @property
    def is_unfinished(self) -> bool:
        return len(self._numbers()) > 1 or self.directory.is_dir()

    def discard_unfinished(self) -> None:
        """Forget an unfinished training; one whose models are being published already is not discarded."""
        if len(self._numbers()) == 1:
            shutil.rmtree(self.directory, ignore_errors=True)

    def numbered(self) -> list[StagePlan]:
        """The plans of all models, as parts of the training that is unfinished or would be started next."""
        number = self.training
        return [replace(task, number=number) for task in self.tasks]

    def finished(self) -> list[StageRecord] | None:
        """The models of this very training, in the order of `tasks`, if all of them have been published."""
        records = [task.finished() for task in self.tasks]
        found = [record for record in records if record is not None]
        return found if len(found) == len(records) and len(self._numbers()) == 1 else None

    def clear_earlier(self, kept: Path) -> None:
        """Delete the directories of trainings that this one has replaced."""
        for other in self.home.iterdir():
            if other.is_dir() and other != kept:
                shutil.rmtree(other, ignore_errors=True)

    def __str__(self) -> str:
        horizons = ", ".join(dict.fromkeys(str(task.key.horizon_s) for task in self.tasks))
        of_symbols = f" of {', '.join(self.symbols)}" if self.is_universal else ""
        return f"{self.symbol} {self.stage.replace('_', ' ')} of {horizons} s{of_symbols}"


def plan_joint(lake: Lake, profile: Profile, symbol: str, stage: Stage) -> JointPlan:
    """The joint training that a stage of a symbol needs now, or NotReady with what is missing for it."""
    joint, name = joint_stage(stage), joint_name(profile, symbol)
    tasks = tuple(plan_stage(lake, profile, key, task) for task in TASKS[joint] for key in trained_together(profile, symbol))
    return JointPlan(name, joint, tasks, lake.joint_model(joint, name))


def joint_name(profile: Profile, symbol: str) -> str:
    """The symbol of a joint training over horizons, or UNIVERSAL."""
    return UNIVERSAL if profile.training.joint == "universal" else symbol


def trained_together(profile: Profile, symbol: str) -> list[ModelKey]:
    """The models of a joint training that makes the models of this symbol."""
    symbols = profile.symbols if profile.training.joint == "universal" else [symbol]
    return [ModelKey(one, horizon) for one in symbols for horizon in profile.evaluation.horizons_s]
