"""The stages of a model on disk: which training a stage needs now, and which finished one the lake holds.

A training has a directory of its own, named by its data version and, from the second training on the same data on, by its number:
checkpoints, the best weights, curves. Only when it is finished does `model.json` beside these directories point to it; until then
the model before it stays in place. So a model is complete or absent, whatever is killed, and a resumed training finds its own
checkpoints.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from uqlob_models.config import Objective
from uqlob_models.content_hash import weights_hash
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.file_hashes import damaged, file_hash
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance, read_provenance
from uqlob_pipeline.lake.staleness import expected_provenance
from uqlob_pipeline.models.inputs import ModelInputs, gather_inputs

Stage = Literal["encoder", "uq_regression", "uq_classification"]
STAGES: tuple[Stage, ...] = ("encoder", "uq_regression", "uq_classification")
HEADS: tuple[Stage, ...] = ("uq_regression", "uq_classification")
OBJECTIVE: dict[Stage, Objective] = {
    "encoder": "pretraining",
    "uq_regression": "regression",
    "uq_classification": "classification",
}
RECORD, HISTORY, SERVED_STATE = "model.json", "history.json", "served_state.json"


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
    training: int = 1  # counts the trainings on the same data that replaced one another

    @property
    def version(self) -> str:
        """Changes with what the stage was made from, and with what came out: a second training on a GPU may differ."""
        return f"{self.provenance.data_version}-{self.weights[:8]}"

    @property
    def best(self) -> Path:
        return self.directory / "best"

    @property
    def members(self) -> list[Path]:
        """The best model of each member, to be loaded; of a stage without an ensemble, `best` alone."""
        return [directory / "best" for directory in member_directories(self.directory, self.ensemble)]

    def verified_members(self) -> list[Path]:
        """The members, once their weights are those that the record was published with."""
        # Records of older versions hash the whole file.
        if self.weights not in (weights_version(self.members), weights_version(self.members, file_hash)):
            raise damaged(self.best, "its weights are not those of the model's record")
        return self.members

    def history(self) -> dict[str, Any]:
        """Epoch by epoch, with the times that the record leaves out, and the device; `others` are the members but the first."""
        history: dict[str, Any] = json.loads((self.directory / HISTORY).read_text())
        return history

    def histories(self) -> list[list[dict[str, float]]]:
        """The epochs of each member."""
        history = self.history()
        return [history["epochs"], *history.get("others", [])]


@dataclass(frozen=True)
class StagePlan:
    """The training that a stage needs now: what it reads, with which settings, and where it is kept."""

    key: ModelKey
    stage: Stage
    inputs: ModelInputs
    provenance: Provenance
    home: Path
    encoder: Path | None
    number: int = 0  # of the joint training that makes this model; 0: the stage is trained by itself

    @property
    def objective(self) -> Objective:
        return OBJECTIVE[self.stage]

    @property
    def data_version(self) -> str:
        return self.provenance.data_version

    @property
    def training(self) -> int:
        """The number of the training that is unfinished or would be started next: the finished one is not touched."""
        if self.number:
            return self.number
        done = self.finished()
        return 1 if done is None else done.training + 1

    @property
    def directory(self) -> Path:
        """Of the training that is unfinished or would be started next."""
        return training_directory(self.home, self.provenance, self.training)

    @property
    def is_unfinished(self) -> bool:
        """Whether a training of this data was started and not finished."""
        return self.directory.is_dir()

    def discard_unfinished(self) -> None:
        """Forget an unfinished training, with all members of its ensemble; a finished one stays in use."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def __str__(self) -> str:
        return f"{self.key} {self.stage}"

    def finished(self) -> StageRecord | None:
        """The record of this very training, if it has been finished."""
        record = read_record(self.home)
        return record if record is not None and record.provenance == self.provenance else None


def plan_stage(lake: Lake, profile: Profile, key: ModelKey, stage: Stage) -> StagePlan:
    """The training that this stage needs now, or NotReady with what is missing for it."""
    provenance = expected_provenance(lake, profile, stage, key)
    inputs = gather_inputs(lake, profile, key, needed_by=stage)
    pretrained = None if stage == "encoder" else read_record(lake.model("encoder", key))
    encoder = pretrained.verified_members()[0] if pretrained else None
    return StagePlan(key, stage, inputs, provenance, lake.model(stage, key), encoder)


def read_record(home: Path) -> StageRecord | None:
    """The finished stage in its directory; None where there is none."""
    provenance = read_provenance(home / RECORD)
    if provenance is None:
        return None
    record: dict[str, Any] = json.loads((home / RECORD).read_text())
    directory = training_directory(home, provenance, record.get("training", 1))
    return StageRecord(**{**record, "provenance": provenance}, directory=directory)


def training_directory(home: Path, provenance: Provenance, training: int) -> Path:
    return home / (provenance.data_version if training == 1 else f"{provenance.data_version}-{training}")


def publish(record: StageRecord) -> None:
    """Publish a finished training, then delete the one that it replaces."""
    home = record.directory.parent
    written = {name: value for name, value in asdict(record).items() if name != "directory"}
    written["provenance"]["data_version"] = record.provenance.data_version
    with atomic_path(home / RECORD, hashed=True) as temporary:
        temporary.write_text(json.dumps(written, indent=1, sort_keys=True))
    for other in home.iterdir():
        if other.is_dir() and other != record.directory:
            shutil.rmtree(other, ignore_errors=True)


def member_prefix(number: int) -> str:
    """Where a member stands below its stage, on disk and in MLflow. The first, number 1, is where a single model would be."""
    return "" if number == 1 else f"member-{number}/"


def member_directories(directory: Path, ensemble: int) -> list[Path]:
    return [directory / member_prefix(number) for number in range(1, ensemble + 1)]


def content_of_weights(path: Path) -> str:
    """A hash of the weights and their description; the order of the file's metadata differs between processes and has no effect.

    A file that cannot be read as weights is hashed as bytes.
    """
    try:
        return weights_hash(path.read_bytes())
    except (ValueError, AttributeError, RecursionError):
        return file_hash(path)


def weights_version(members: list[Path], hash_of: Callable[[Path], str] = content_of_weights) -> str:
    """Of the best models of all members: changes when any of them does."""
    hashes = [hash_of(member / "weights.safetensors") for member in members]
    return hashes[0] if len(hashes) == 1 else hashlib.blake2b("".join(hashes).encode(), digest_size=12).hexdigest()
