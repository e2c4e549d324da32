"""The stages of a model on disk: which training a stage asks for now, and which one stands in the lake.

A training has a directory of its own, named by its data version: checkpoints, the best weights, curves. Only when it is finished
does `model.json` beside these directories point to it; until then the model before it stays in place. So a model is whole or
absent, whatever is killed, and a training that goes on finds its own checkpoints and no other's.
"""

import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from uqlob_models.config import Objective, StageConfig
from uqlob_pipeline.fits import NotReady
from uqlob_pipeline.lake import Lake, ModelKey, Provenance, atomic_path, file_hash
from uqlob_pipeline.model_inputs import ModelInputs, Say, gather_inputs
from uqlob_pipeline.profile import Profile

Stage = Literal["encoder", "uq_regression", "uq_classification"]
STAGES: tuple[Stage, ...] = ("encoder", "uq_regression", "uq_classification")
HEADS: tuple[Stage, ...] = ("uq_regression", "uq_classification")
OBJECTIVE: dict[Stage, Objective] = {
    "encoder": "pretraining",
    "uq_regression": "regression",
    "uq_classification": "classification",
}
STAGE_CODE = "2"  # raised when the same inputs and settings would give other weights
RECORD, HISTORY = "model.json", "history.json"


@dataclass(frozen=True)
class StageRecord:
    """A finished stage. Nothing in it depends on the machine's speed: the same training writes the same record.

    Of an ensemble, `best_metric`, `validation` and `confusion` are those of the mixture; epochs and steps are the first member's.
    """

    provenance: Provenance
    weights: str  # hash of the weights file, or of all members'
    metric: str
    best_metric: float
    best_epoch: int
    epochs: int
    steps: int
    stopped_early: bool
    windows: dict[str, int]  # targets by split
    validation: dict[str, float]  # every validation metric, of the best epoch
    confusion: list[list[int]]  # true class by predicted class, on the selection half
    directory: Path
    ensemble: int = 1

    @property
    def version(self) -> str:
        """Changes with what the stage was made from, and with what came out: a second training on a GPU may differ."""
        return f"{self.provenance.data_version}-{self.weights[:8]}"

    @property
    def best(self) -> Path:
        return self.directory / "best"

    @property
    def members(self) -> list[Path]:
        """The best model of each member; of a stage without an ensemble, `best` alone."""
        return [directory / "best" for directory in member_directories(self.directory, self.ensemble)]

    def history(self) -> dict[str, Any]:
        """Epoch by epoch, with the times that the record leaves out, and the device; `others` are the members but the first."""
        said: dict[str, Any] = json.loads((self.directory / HISTORY).read_text())
        return said

    def histories(self) -> list[list[dict[str, float]]]:
        """The epochs of each member."""
        said = self.history()
        return [said["epochs"], *said.get("others", [])]


@dataclass(frozen=True)
class StagePlan:
    """The training that a stage asks for now: what it reads, with which settings, and where it is kept."""

    key: ModelKey
    stage: Stage
    inputs: ModelInputs
    provenance: Provenance
    home: Path
    encoder: Path | None

    @property
    def objective(self) -> Objective:
        return OBJECTIVE[self.stage]

    @property
    def data_version(self) -> str:
        return self.provenance.data_version

    @property
    def directory(self) -> Path:
        return self.home / self.data_version

    def __str__(self) -> str:
        return f"{self.key} {self.stage}"

    def finished(self) -> StageRecord | None:
        """The record of this very training, if it has been finished."""
        record = read_record(self.home)
        return record if record is not None and record.provenance == self.provenance else None


def stage_settings(profile: Profile, stage: Stage) -> str:
    """Whatever of the profile changes the weights, and nothing else: more checkpoints or another device are no change."""
    objective = OBJECTIVE[stage]
    own = [f"training.{objective}.{field.name}" for field in fields(StageConfig) if field.name != "checkpoint_every"]
    shared = ["training.encoder", "training.seed", "training.bf16", "training.store_dtype", "labels.latency_us"]
    if stage != "encoder":
        shared += ["training.head", "training.test_seed", "training.mirror_predictions", "training.ensemble"]
    if stage == "uq_regression":
        shared.append("training.loss")
    return profile.settings_version(*own, *shared)


def plan_stage(lake: Lake, profile: Profile, key: ModelKey, stage: Stage) -> StagePlan:
    """What training this stage now would mean, or NotReady with what is missing for it."""
    inputs = gather_inputs(lake, profile, key, needed_by=stage)
    versions = dict(inputs.versions)
    encoder = None
    if stage != "encoder":
        pretrained = current_stage(lake, profile, key, "encoder", needed_by=stage)
        versions["encoder"] = pretrained.version
        encoder = pretrained.best
    provenance = Provenance(stage, STAGE_CODE, stage_settings(profile, stage), versions)
    return StagePlan(key, stage, inputs, provenance, lake.model(stage, key), encoder)


def current_stage(lake: Lake, profile: Profile, key: ModelKey, stage: Stage, *, needed_by: str) -> StageRecord:
    """The finished stage, if it was trained on what the lake holds now with the profile's settings; else NotReady."""
    record = read_record(lake.model(stage, key))
    if record is None:
        raise NotReady(f"{needed_by} of {key} needs {stage}, which is not trained. Materialise {stage} for {key} first")
    why = why_differs(record.provenance, plan_stage(lake, profile, key, stage).provenance)
    if why:
        raise NotReady(f"{needed_by} of {key}: its {stage} was {why}. Materialise {stage} for {key} again")
    return record


def why_differs(made: Provenance, wanted: Provenance) -> str:
    """In words, how something was made otherwise than it would be now; empty where it would be the same."""
    if made.settings_version != wanted.settings_version:
        return "made with other settings than the profile's"
    if made.code_version != wanted.code_version:
        return "made by other code"
    names = sorted(name for name in {*made.inputs, *wanted.inputs} if made.inputs.get(name) != wanted.inputs.get(name))
    if not names:
        return ""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"made from other data than the lake now holds ({', '.join(names[:4])}{more})"


def read_record(home: Path) -> StageRecord | None:
    """The finished stage in its directory; None where there is none."""
    try:
        said: dict[str, Any] = json.loads((home / RECORD).read_text())
    except FileNotFoundError:
        return None
    provenance = said.pop("provenance")
    provenance.pop("data_version")
    made = Provenance(**provenance)
    return StageRecord(**said, provenance=made, directory=home / made.data_version)


def publish(record: StageRecord) -> None:
    """Put a finished training in the place of the one before, then clear that one away."""
    home = record.directory.parent
    said = {name: value for name, value in asdict(record).items() if name != "directory"}
    said["provenance"]["data_version"] = record.provenance.data_version
    with atomic_path(home / RECORD) as temporary:
        temporary.write_text(json.dumps(said, indent=1, sort_keys=True))
    for other in home.iterdir():
        if other.is_dir() and other != record.directory:
            shutil.rmtree(other, ignore_errors=True)


def unpublish(plan: StagePlan) -> None:
    """Forget a training of the same data that is about to be done afresh: else one cut short would go on with old members."""
    if plan.finished() is not None:
        (plan.home / RECORD).unlink()
    for member in plan.directory.glob("member-*"):
        shutil.rmtree(member)


def member_prefix(number: int) -> str:
    """Where a member stands below its stage, on disk and in MLflow. The first, number 1, is where a single model would be."""
    return "" if number == 1 else f"member-{number}/"


def member_directories(directory: Path, ensemble: int) -> list[Path]:
    return [directory / member_prefix(number) for number in range(1, ensemble + 1)]


def weights_version(members: list[Path]) -> str:
    """Of the best models of all members: changes when any of them does."""
    hashes = [file_hash(member / "weights.safetensors") for member in members]
    return hashes[0] if len(hashes) == 1 else hashlib.blake2b("".join(hashes).encode(), digest_size=12).hexdigest()


@contextmanager
def only_one(home: Path, say: Say) -> Iterator[None]:
    """Two runs for the same model: the second waits, and then finds the work done. The lock dies with its process."""
    home.mkdir(parents=True, exist_ok=True)
    with open(home / ".lock", "w") as lock:
        waiting = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    say(f"another run is training in {home}; waiting for it")
                waiting = True
                time.sleep(0.5)
        yield
