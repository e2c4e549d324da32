"""Everything about a model and its training that a profile can set. Standard library only: the profile nests these dataclasses
directly, so importing them must cost nothing, and torch stays out of the code server.

Defaults are the paper's values. A comment that says "not printed" marks a value that the paper leaves open
and that was chosen here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Objective = Literal["pretraining", "regression", "classification"]
OBJECTIVES: tuple[Objective, ...] = ("pretraining", "regression", "classification")

# The order is the contract with the event_features table and with the feature scales.
CONTINUOUS_FEATURES = ("log_dt", "log_distance", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi")
CLASSES = ("down", "up", "stationary")

_FORBID_UNKNOWN_KEYS: dict[str, Any] = {"extra": "forbid"}


def _require(ok: bool, key: str, rule: str, value: object) -> None:
    if not ok:
        raise ValueError(f"{key} must be {rule}, but is {value!r}")


def _positive(owner: str, instance: object, *names: str) -> None:
    for name in names:
        value = getattr(instance, name)
        values: Iterable[Any] = value if isinstance(value, tuple) else (value,)
        _require(all(v > 0 for v in values), f"{owner}.{name}", "positive", value)


def _at_least_zero(owner: str, instance: object, *names: str) -> None:
    for name in names:
        value = getattr(instance, name)
        _require(value >= 0, f"{owner}.{name}", "zero or more", value)


@dataclass(frozen=True)
class DTablWidths:
    """Layer sizes of D-TABL. The paper prints parameter counts and not widths; these reproduce every printed count exactly."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    bilinear_features: tuple[int, ...] = (64, 128, 256)
    bilinear_times: tuple[int, ...] = (256, 80, 50)
    attention_features: int = 96
    attention_times: int = 2

    def __post_init__(self) -> None:
        _positive("dtabl", self, "bilinear_features", "bilinear_times", "attention_features", "attention_times")
        same = len(self.bilinear_features) == len(self.bilinear_times) >= 1
        _require(same, "dtabl.bilinear_times", "as long as dtabl.bilinear_features", self.bilinear_times)


@dataclass(frozen=True)
class DeepLobWidths:
    """Layer sizes of the second encoder, a small DeepLOB-style convolution + LSTM. It is not in the paper."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    channels: int = 32
    inception_channels: int = 32
    lstm: int = 96
    stride: int = 4  # of each of the two convolutions in front of the inception module: 512 events become 32 steps

    def __post_init__(self) -> None:
        _positive("deeplob", self, "channels", "inception_channels", "lstm", "stride")


@dataclass(frozen=True)
class EncoderConfig:
    """Windows in, a representation of d_h numbers out."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    kind: Literal["dtabl", "deeplob"] = "dtabl"
    window_length: int = 512
    embedding: int = 8
    dropout: float = 0.1  # not printed: TABL's authors use 0.1 after each bilinear layer, and MC dropout needs some
    clamp: float = 8.0  # not printed: inputs are clamped at this many standard deviations
    dropped_features: tuple[str, ...] = ()  # ablation: these are held at zero; "token" drops the embedding
    dtabl: DTablWidths = field(default_factory=DTablWidths)
    deeplob: DeepLobWidths = field(default_factory=DeepLobWidths)

    def __post_init__(self) -> None:
        _require(self.kind in ("dtabl", "deeplob"), "encoder.kind", "'dtabl' or 'deeplob'", self.kind)
        _positive("encoder", self, "window_length", "embedding", "clamp")
        _require(0 <= self.dropout < 1, "encoder.dropout", "in [0, 1)", self.dropout)
        known = (*CONTINUOUS_FEATURES, "token")
        unknown = [name for name in self.dropped_features if name not in known]
        _require(not unknown, "encoder.dropped_features", f"names out of {', '.join(known)}", self.dropped_features)


@dataclass(frozen=True)
class HeadConfig:
    """The attentive head: context size and widths (paper's hyperparameter table; inner widths from its parameter table)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    context: int = 15  # C; 0 switches conditioning off and leaves every parameter in place
    projection: int = 128
    label_projection: int = 32  # not printed; follows from the trunk's parameter count
    attention: int = 256  # d_r
    heads: int = 4
    context_encoder: tuple[int, ...] = (256, 256)  # hidden widths; the third layer ends in d_r
    decoder: tuple[int, ...] = (224, 192, 64, 352)  # hidden widths, not printed; they follow from the decoder's parameter count
    dropout: float = 0.0  # not printed: in the context encoder and the decoder
    variance_floor: float = 1e-8  # epsilon, in ticks squared
    shuffle_context_labels: bool = False  # ablation: every context label is that of a random training window

    def __post_init__(self) -> None:
        _at_least_zero("head", self, "context")
        _positive(
            "head", self, "projection", "label_projection", "attention", "heads", "context_encoder", "decoder", "variance_floor"
        )
        _require(self.attention % self.heads == 0, "head.attention", f"a multiple of head.heads ({self.heads})", self.attention)
        _require(0 <= self.dropout < 1, "head.dropout", "in [0, 1)", self.dropout)


@dataclass(frozen=True)
class RegressionLoss:
    """The weights lambda_1 to lambda_4 of the four regression terms, and what shapes each. Zero switches a term off."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    lambda_nll: float = 1.0
    lambda_weighted_mae: float = 0.1
    lambda_directional: float = 0.5
    lambda_calibration: float = 0.5
    p: float = 4.0
    w_max: float = 40.0
    margin: float = 1.0
    bins: int = 3

    def __post_init__(self) -> None:
        weights = ("lambda_nll", "lambda_weighted_mae", "lambda_directional", "lambda_calibration")
        _at_least_zero("loss", self, *weights, "p", "margin")
        _require(any(getattr(self, name) > 0 for name in weights), "loss", "given at least one positive lambda", self)
        _require(self.w_max >= 1, "loss.w_max", "at least 1", self.w_max)
        _positive("loss", self, "bins")


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rates move: the paper's warm-up and cosine restarts, or one cycle over the whole stage."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    kind: Literal["warmup_restarts", "one_cycle"] = "warmup_restarts"
    warmup_steps: int = 10_000
    warmup_start: float = 1 / 3  # not printed: the starting factor that LinearLR takes unless told otherwise
    restart_period: int = 15_000  # T_0
    restart_multiplier: int = 2  # T_mult
    minimum_rate: float = 1e-5  # eta_min; where a peak has decayed below it, the peak itself is the floor
    peak_decay: float = 0.5  # gamma, at each restart
    one_cycle_rise: float = 0.3  # share of the stage spent rising
    one_cycle_start: float = 1 / 25  # of the peak rate
    one_cycle_end: float = 1e-4  # of the starting rate

    def __post_init__(self) -> None:
        _require(self.kind in ("warmup_restarts", "one_cycle"), "schedule.kind", "'warmup_restarts' or 'one_cycle'", self.kind)
        _at_least_zero("schedule", self, "warmup_steps", "minimum_rate", "one_cycle_end")
        _positive("schedule", self, "restart_period", "restart_multiplier", "peak_decay", "warmup_start", "one_cycle_start")
        _require(self.warmup_start <= 1, "schedule.warmup_start", "at most 1", self.warmup_start)
        _require(self.peak_decay <= 1, "schedule.peak_decay", "at most 1", self.peak_decay)
        _require(0 < self.one_cycle_rise < 1, "schedule.one_cycle_rise", "between 0 and 1", self.one_cycle_rise)


@dataclass(frozen=True)
class StageConfig:
    """One stage of training: pretraining, or fine-tuning one of the heads."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    epochs: int = 15
    batch: int = 16  # targets a step, in pretraining and when sampling instances
    sampling: Literal["blocks", "instances"] = "blocks"  # the paper: instances; what differs: uqlob_models/sampling.py
    targets_per_block: int = 32  # not in the paper
    blocks_per_step: int = 2  # not in the paper
    encoder_rate: float = 1e-5
    head_rate: float = 5e-5
    weight_decay: float = 0.0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    clip_norm: float = 1.0  # not printed; 0 switches clipping off
    mirror: bool = False  # not in the paper: half of the blocks seen with bid and ask exchanged
    patience: int = 5  # not printed: validations without a better metric before stopping; 0 never stops early
    validate_every: int = 1  # epochs
    select_from: int = 1  # not printed: first epoch whose model may be kept (the last always may); one cycle settles at its end
    checkpoint_every: int = 1_000  # steps

    def __post_init__(self) -> None:
        _positive("stage", self, "epochs", "batch", "targets_per_block", "blocks_per_step", "validate_every", "checkpoint_every")
        _positive("stage", self, "encoder_rate", "head_rate", "select_from")
        _at_least_zero("stage", self, "weight_decay", "clip_norm", "patience")
        _require(self.sampling in ("blocks", "instances"), "stage.sampling", "'blocks' or 'instances'", self.sampling)

    @property
    def targets_per_step(self) -> int:
        """How many targets a step of fine-tuning takes, which is what rates and schedule are for. Pretraining takes `batch`."""
        return self.targets_per_block * self.blocks_per_step if self.sampling == "blocks" else self.batch


def _pretraining() -> StageConfig:
    # The printed rates are those of fine-tuning (encoder, head); the rate and batch of pretraining are not printed.
    return StageConfig(batch=64, encoder_rate=1e-4, head_rate=1e-4)


@dataclass(frozen=True)
class TrainingConfig:
    """A model and its two stages, complete: this is what a checkpoint carries."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID_UNKNOWN_KEYS

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    loss: RegressionLoss = field(default_factory=RegressionLoss)
    pretraining: StageConfig = field(default_factory=_pretraining)
    regression: StageConfig = field(default_factory=StageConfig)
    classification: StageConfig = field(default_factory=StageConfig)
    seed: int = 42
    test_seed: int = 999  # whatever is drawn at random when predicting (MC dropout, shuffled context labels)
    mc_dropout_passes: int = 0  # not in the paper: predictions are the mixture of so many passes with dropout on; 0: one without
    ensemble: int = 1  # not in the paper: members a head, of seeds seed, seed + 1, ...; predictions are their mixture
    mirror_predictions: bool = False  # not in the paper: a head's forecasts mix its view of the market and of the mirrored one
    store_dtype: Literal["float16", "float32"] = "float16"  # not printed
    device: Literal["auto", "cpu", "cuda"] = "auto"
    bf16: bool = True  # not printed: autocast on CUDA; without effect on the CPU
    compile: bool = False  # not printed: torch.compile of the encoder on CUDA

    def __post_init__(self) -> None:
        _at_least_zero("training", self, "seed", "test_seed", "mc_dropout_passes")
        _positive("training", self, "ensemble")
        drops = self.mc_dropout_passes == 0 or self.encoder.dropout > 0 or self.head.dropout > 0
        _require(drops, "training.mc_dropout_passes", "0 without encoder.dropout or head.dropout", self.mc_dropout_passes)
        _require(self.store_dtype in ("float16", "float32"), "training.store_dtype", "'float16' or 'float32'", self.store_dtype)
        _require(self.device in ("auto", "cpu", "cuda"), "training.device", "'auto', 'cpu' or 'cuda'", self.device)

    def stage(self, objective: Objective) -> StageConfig:
        _require(objective in OBJECTIVES, "objective", f"one of {', '.join(OBJECTIVES)}", objective)
        stage: StageConfig = getattr(self, objective)
        return stage


def to_dict(config: TrainingConfig) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(values: dict[str, Any]) -> TrainingConfig:
    """The inverse of `to_dict`, also after a round trip through JSON; unknown keys are refused by the constructors."""
    nested: dict[str, Any] = {}
    for name in OBJECTIVES:
        if name in values:
            nested[name] = StageConfig(**{**values[name], "schedule": ScheduleConfig(**values[name]["schedule"])})
    if "encoder" in values:
        encoder = dict(values["encoder"])
        encoder["dtabl"] = DTablWidths(**_tuples(encoder["dtabl"]))
        encoder["deeplob"] = DeepLobWidths(**encoder["deeplob"])
        nested["encoder"] = EncoderConfig(**_tuples(encoder))
    if "head" in values:
        nested["head"] = HeadConfig(**_tuples(values["head"]))
    if "loss" in values:
        nested["loss"] = RegressionLoss(**values["loss"])
    return TrainingConfig(**{**values, **nested})


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def fingerprint(values: dict[str, Any]) -> str:
    """A short hash of plain JSON values: equal settings, equal fingerprint."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
