"""Models and training state on disk: safetensors and JSON, nothing pickled.

A saved model is a directory of `weights.safetensors` and `config.json`. The weights file holds the same JSON in its header, so
that it is complete by itself; `config.json` is for people.

A training directory keeps two generations of state. The older one is deleted once the newer one is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from uqlob_models.config import Objective, TrainingConfig
from uqlob_models.content_hash import CONTENT, DamagedContent, described, require_described, require_weights, weights_hash
from uqlob_models.encoders import Encoder
from uqlob_models.model import UqModel, build_encoder

WEIGHTS, CONFIG = "weights.safetensors", "config.json"
TRAINING, STATE = "training.safetensors", "state.json"
GENERATIONS = 2


class CheckpointError(RuntimeError):
    """A model or a training state cannot be read, or belongs to another training."""


@dataclass(frozen=True)
class SavedModel:
    """A model rebuilt from its directory, in evaluation mode, with the metadata saved with it."""

    model: Encoder | UqModel
    objective: Objective
    config: TrainingConfig
    step: int
    data_version: str
    y_ref: float
    extra: dict[str, Any]

    def encoder(self) -> Encoder:
        return self.model.encoder if isinstance(self.model, UqModel) else self.model

    def uq_model(self) -> UqModel:
        if not isinstance(self.model, UqModel):
            raise CheckpointError("this is a pretrained encoder without a head: fine-tune a head first")
        return self.model


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name in the same directory, moved onto `path` when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _sync(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu").contiguous().clone() for name, tensor in tensors.items()}


def build(config: TrainingConfig, objective: Objective) -> Encoder | UqModel:
    return build_encoder(config.encoder) if objective == "pretraining" else UqModel(config, objective)


def save_model(
    directory: Path,
    model: nn.Module,
    objective: str,
    config: TrainingConfig,
    *,
    step: int,
    data_version: str,
    y_ref: float | list[float],
    **extra: Any,
) -> None:
    about = {
        "objective": objective,
        "step": step,
        "data_version": data_version,
        "y_ref": y_ref,
        "extra": extra,
        "config": asdict(config),
    }
    text = json.dumps(about, indent=1)
    with replacing(directory / WEIGHTS) as path:
        tensors = _on_host(model.state_dict())
        content = weights_hash(save(tensors, metadata={"about": text}))
        # One entry of metadata: several would be written in an order that changes from file to file.
        save_file(tensors, path, metadata={"about": json.dumps({**about, CONTENT: content}, indent=1)})
    with replacing(directory / CONFIG) as path:
        path.write_text(text)


def read_model(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The metadata and verified weights of a saved model."""
    path = Path(directory) / WEIGHTS
    if not path.exists():
        raise CheckpointError(f"{path} is missing: train this model first")
    try:
        require_weights(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, DamagedContent) as error:
        raise CheckpointError(f"{path} is damaged ({error}): train this model again") from error
    if "about" not in metadata:
        raise CheckpointError(f"{path} was not written by uqlob: its header has no configuration")
    return json.loads(metadata["about"]), load_file(path)


def load_model(directory: Path, device: torch.device | str = "cpu") -> SavedModel:
    """Rebuilds a saved model from its directory alone."""
    about, weights = read_model(directory)
    config = TrainingConfig(**about["config"])
    model = build(config, about["objective"])
    model.load_state_dict(weights)
    model.to(device).eval()
    return SavedModel(model, about["objective"], config, about["step"], about["data_version"], about["y_ref"], about["extra"])


def load_members(directories: Sequence[Path], device: torch.device | str = "cpu") -> list[UqModel]:
    """The saved heads of an ensemble; of a single model, a list of one."""
    return [load_model(directory, device).uq_model() for directory in directories]


@dataclass(frozen=True)
class TrainingState:
    """Everything that a training needs to continue."""

    weights: dict[str, Tensor]
    tensors: dict[str, Tensor]  # optimiser moments, random state, running sums
    about: dict[str, Any]
    path: Path


def write_generation(
    directory: Path, step: int, weights: dict[str, Tensor], tensors: dict[str, Tensor], about: dict[str, Any]
) -> Path:
    """Adds the state after `step` steps, then deletes all but the two newest. A kill at any point leaves one that is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(".partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=directory))
    save_file(_on_host(weights), partial / WEIGHTS)
    save_file(_on_host(tensors), partial / TRAINING)
    (partial / STATE).write_text(json.dumps(described(about, partial, WEIGHTS, TRAINING), indent=1))
    for name in (WEIGHTS, TRAINING, STATE):
        _sync(partial / name)
    final = directory / f"step-{step:010d}"
    while final.exists():  # saved within an epoch and again at its end: keep the first until the second is complete
        final = final.with_name(final.name + "b")
    os.rename(partial, final)
    _sync(directory)
    for old in generations(directory)[GENERATIONS:]:
        shutil.rmtree(old)
    return final


def generations(directory: Path) -> list[Path]:
    """Newest first. The state is written last: a directory without it is the part of a copy to another machine that broke off."""
    return sorted((path.parent for path in directory.glob(f"step-*/{STATE}")), reverse=True)


def read_newest_generation(directory: Path) -> TrainingState | None:
    """The newest readable state; None if there is no checkpoint."""
    problems = []
    for path in generations(directory):
        try:
            about = json.loads((path / STATE).read_text())
            if CONTENT in about:  # states of older versions have none
                about = require_described(about, path)
            return TrainingState(load_file(path / WEIGHTS), load_file(path / TRAINING), about, path)
        except (OSError, ValueError, SafetensorError) as error:
            problems.append(f"{path}: {error}")
    if problems:
        raise CheckpointError("no checkpoint can be read: train afresh. " + "; ".join(problems))
    return None
