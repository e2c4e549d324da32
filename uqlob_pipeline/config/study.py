"""The study's variants: small TOML overlays on the profile, validated before anything runs.

A variant is one row of one of the paper's two empty tables. The built-in ones are in `config/study/`; `study.overlays` of a
profile names a directory of further ones. What a variant changes is written as in the profile, below `[training]`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from uqlob_models.config import TrainingConfig
from uqlob_pipeline.config.section import Section

OVERLAYS = Path(__file__).parent / "study"
Mode = Literal["frozen", "end_to_end"]
StudyTable = Literal["baselines", "ablations"]
# head: the attentive head; encoder: D-TABL's own softmax; the rest are plain models on window summaries.
Method = Literal["head", "encoder", "logistic", "ridge", "boosting_classifier", "boosting_regressor", "ewma"]
Head = Literal["regression", "classification"]
HEAD_OF: dict[str, Head] = {
    "encoder": "classification",
    "logistic": "classification",
    "boosting_classifier": "classification",
    "ridge": "regression",
    "boosting_regressor": "regression",
    "ewma": "regression",
}
REFERENCE = {"baselines": "uq-regression", "ablations": "full"}  # the row that others are compared with


class StudyError(ValueError):
    """A variant cannot be used; the message names its file, the key and what was expected."""


class StudySettings(Section):
    """The profile's section `study`: how many seeds, which models, and which further variants."""

    seeds: int = Field(5, ge=1, le=50, description="seeds per row; the first is training.seed")
    mode: Mode = Field("frozen", description="frozen: heads on one pretrained encoder's representations; end_to_end: fine-tuned")
    symbols: tuple[str, ...] = Field((), description="symbols of the study; empty: the profile's first")
    horizons_s: tuple[int, ...] = Field((), description="horizons of the study; empty: the profile's shortest")
    overlays: Path | None = Field(None, description="a directory of further variants, one TOML file each")
    keep_models: bool = Field(False, description="keep the trained heads of finished rows; about 30 MB each")


class Variant(Section):
    """One row of a table."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    table: StudyTable
    title: str = Field(min_length=1)
    order: int = Field(100, description="rows are shown in this order")
    method: Method = "head"
    head: Head | None = Field(None, description="which head is trained; method = 'head' needs it")
    mode: Mode | None = Field(None, description="overrides the profile's study.mode")
    optional: bool = Field(False, description="made only when it is named, and not missed otherwise")
    context_statistics: bool = Field(False, description="plain models: also statistics of the realised context outcomes")
    inputs: tuple[str, ...] = Field((), description="plain models: only summaries of these features; empty: all 44")
    training: dict[str, Any] = Field(default_factory=dict, description="overlay on the profile's [training]")

    @model_validator(mode="after")
    def _consistent(self) -> "Variant":
        if (self.method == "head") != (self.head is not None):
            raise ValueError(f"head: method = '{self.method}' {'needs one' if self.method == 'head' else 'takes none'}")
        if (self.context_statistics or self.inputs) and self.method in ("head", "encoder", "ewma"):
            raise ValueError(f"context_statistics and inputs belong to plain models, not to method = '{self.method}'")
        return self

    @property
    def forecasts(self) -> Head:
        """Which kind of forecast it makes."""
        return self.head or HEAD_OF[self.method]

    def training_config(self, base: TrainingConfig, mode: Mode, seed: int) -> TrainingConfig:
        """The profile's training with the overlay, the mode and the seed (from 1) of a row."""
        settings = merged(asdict(base), self.training)
        frozen = (self.mode or mode) == "frozen"
        for stage in ("regression", "classification"):
            settings[stage] = settings[stage] | {"freeze_encoder": frozen}
            if (
                settings[stage]["select_from"] >= settings[stage]["epochs"]
            ):  # the last epoch counts: the others need no validation
                settings[stage]["validate_every"] = settings[stage]["epochs"]
        settings["seed"] += seed - 1
        try:
            return TrainingConfig(**settings)
        except ValidationError as error:
            raise StudyError(f"variant {self.name}: {_explain(error, 'training')}") from error


def merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `overlay`, section by section."""
    found = dict(base)
    for name, value in overlay.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found


def read_variant(path: Path) -> Variant:
    """A variant is named after its file."""
    try:
        variant = Variant(name=path.stem, **tomllib.loads(path.read_text()))
        variant.training_config(TrainingConfig(), "frozen", 1)  # an unknown key or a wrong value is an error now
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path} is not valid TOML: {error}") from error
    except TypeError as error:
        raise StudyError(f"{path}: {error}; the name of a variant is that of its file") from error
    except ValidationError as error:
        raise StudyError(f"{path}: {_explain(error)}") from error
    except StudyError as error:
        raise StudyError(f"{path}: {error}") from error
    return variant


def read_variants(settings: StudySettings) -> dict[str, Variant]:
    """The built-in variants and the profile's own, in the order of the tables. An own one replaces a built-in one."""
    directories = [OVERLAYS, *([settings.overlays] if settings.overlays is not None else [])]
    for directory in directories:
        if not directory.is_dir():
            raise StudyError(f"study.overlays = {directory} is no directory: create it, or leave the key out")
    found = {path.stem: read_variant(path) for directory in directories for path in sorted(directory.glob("*.toml"))}
    return dict(sorted(found.items(), key=lambda item: (item[1].table != "baselines", item[1].order, item[0])))


def _explain(error: ValidationError, prefix: str = "") -> str:
    parts = []
    for problem in error.errors():
        key = ".".join(str(part) for part in (*([prefix] if prefix else []), *problem["loc"])) or "(the whole variant)"
        parts.append(f"{key}: {problem['msg']}")
    return "; ".join(parts)
