"""Everything about a model and its training that a profile can set: frozen dataclasses, validated by pydantic.

Nothing here imports torch, because the profile nests these classes and the code server loads the profile.
Defaults are the paper's values. "Not printed" marks a value that the paper leaves open and that was chosen here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

Objective = Literal["pretraining", "regression", "classification"]
OBJECTIVES: tuple[Objective, ...] = ("pretraining", "regression", "classification")
NO_EFFECT_ON_WEIGHTS = ("checkpoint_every", "joint_epochs")  # of a stage that is trained by itself

# The order is the contract with the event_features table and with the feature scales.
CONTINUOUS_FEATURES = ("log_dt", "log_distance", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi")
Feature = Literal["log_dt", "log_distance", "log_volume", "dnfi", "dnfi_50", "dnfi_200", "qi", "token"]

Widths = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
FORBID_UNKNOWN_KEYS = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class DTablWidths:
    """Layer sizes of D-TABL. The paper prints parameter counts and not widths; these reproduce every printed count exactly."""

    bilinear_features: Widths = (64, 128, 256)
    bilinear_times: Widths = (256, 80, 50)
    attention_features: PositiveInt = 96
    attention_times: PositiveInt = 2

    def __post_init__(self) -> None:
        if len(self.bilinear_features) != len(self.bilinear_times):
            raise ValueError(
                f"bilinear_features {self.bilinear_features} and bilinear_times {self.bilinear_times} must be equally long"
            )


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class DeepLobWidths:
    """Layer sizes of the second encoder, a small DeepLOB-style convolution + LSTM. It is not in the paper."""

    channels: PositiveInt = 32
    inception_channels: PositiveInt = 32
    lstm: PositiveInt = 96
    stride: PositiveInt = 4  # of each of the two convolutions before the inception module: 512 events become 32 steps


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class EncoderConfig:
    """Windows in, a representation of d_h numbers out."""

    kind: Literal["dtabl", "deeplob"] = "dtabl"
    window_length: PositiveInt = 512
    embedding: PositiveInt = 8
    dropout: Dropout = 0.1  # not printed: TABL's authors use 0.1 after each bilinear layer, and MC dropout needs some
    clamp: PositiveFloat = 8.0  # not printed: inputs are clamped at this many standard deviations
    summaries: bool = False  # not in the paper: 44 plain statistics of the window follow its representation
    dropped_features: tuple[Feature, ...] = ()  # ablation: these are held at zero; "token" drops the embedding
    temporal_attention: bool = True  # ablation: false holds lambda of D-TABL's attention at zero, so that it has no effect
    dtabl: DTablWidths = field(default_factory=DTablWidths)
    deeplob: DeepLobWidths = field(default_factory=DeepLobWidths)


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class HeadConfig:
    """The attentive head: context size and widths (paper's hyperparameter table; inner widths from its parameter table)."""

    context: NonNegativeInt = 15  # C; 0 switches conditioning off and leaves every parameter in place
    projection: PositiveInt = 128
    label_projection: PositiveInt = 32  # not printed; follows from the trunk's parameter count
    attention: PositiveInt = 256  # d_r
    heads: PositiveInt = 4
    context_encoder: tuple[PositiveInt, ...] = (256, 256)  # hidden widths; the third layer ends in d_r
    decoder: tuple[PositiveInt, ...] = (224, 192, 64, 352)  # hidden widths, not printed; from the decoder's parameter count
    dropout: Dropout = 0.0  # not printed: in the context encoder and the decoder
    variance_floor: PositiveFloat = 1e-8  # epsilon, in ticks squared
    # Not in the paper, which is Gaussian. student_t learns its degrees of freedom; zero_inflated_t adds a probability that the
    # mid-price does not move at all, one more output.
    likelihood: Literal["gaussian", "student_t", "zero_inflated_t"] = "gaussian"
    normalise_context: bool = True  # not in the paper: a parameter-free layer norm before the context encoder (`Trunk.prepare`)
    initial_scales: bool = True  # not printed: initial weights of `uqlob_models/head.py` instead of PyTorch's defaults
    linear_path: bool = False  # not in the paper: a linear model of summaries and context outcomes is added to the outputs
    shuffle_context_labels: bool = False  # ablation: every context label is that of a random training window

    def __post_init__(self) -> None:
        if self.attention % self.heads:
            raise ValueError(f"attention {self.attention} must be a multiple of heads {self.heads}")


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class RegressionLoss:
    """The weights lambda_1 to lambda_4 of the four regression terms, and what shapes each. Zero switches a term off."""

    lambda_nll: NonNegativeFloat = 1.0
    lambda_weighted_mae: NonNegativeFloat = 0.1
    lambda_directional: NonNegativeFloat = 0.5
    lambda_calibration: NonNegativeFloat = 0.5
    p: NonNegativeFloat = 4.0
    w_max: Annotated[float, Field(ge=1)] = 40.0
    margin: NonNegativeFloat = 1.0
    bins: PositiveInt = 3
    unbiased_calibration: bool = False  # not in the paper: product of two half-batch deviations instead of the square of one

    def __post_init__(self) -> None:
        if not (self.lambda_nll or self.lambda_weighted_mae or self.lambda_directional or self.lambda_calibration):
            raise ValueError("at least one lambda must be positive")


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class ScheduleConfig:
    """How the learning rates move: the paper's warm-up and cosine restarts, or one cycle over the whole stage."""

    kind: Literal["warmup_restarts", "one_cycle"] = "warmup_restarts"
    warmup_steps: NonNegativeInt = 10_000
    warmup_start: PositiveShare = 1 / 3  # not printed: the default starting factor of PyTorch's LinearLR
    restart_period: PositiveInt = 15_000  # T_0
    restart_multiplier: PositiveInt = 2  # T_mult
    minimum_rate: NonNegativeFloat = 1e-5  # eta_min; where a peak has decayed below it, the peak itself is the floor
    peak_decay: PositiveShare = 0.5  # gamma, at each restart
    one_cycle_rise: Annotated[float, Field(gt=0, lt=1)] = 0.3  # share of the stage spent rising
    one_cycle_start: PositiveFloat = 1 / 25  # of the peak rate
    one_cycle_end: NonNegativeFloat = 1e-4  # of the starting rate


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class StageConfig:
    """One stage of training: pretraining, or fine-tuning one of the heads."""

    epochs: PositiveInt = 15
    batch: PositiveInt = 16  # targets per step, in pretraining and when sampling instances
    sampling: Literal["blocks", "instances"] = "blocks"  # the paper: instances. Compared in uqlob_models/sampling.py
    targets_per_block: PositiveInt = 32  # not in the paper
    blocks_per_step: PositiveInt = 2  # not in the paper
    encoder_rate: PositiveFloat = 1e-5
    head_rate: PositiveFloat = 5e-5
    weight_decay: NonNegativeFloat = 0.0
    decay_linear_only: bool = False  # not in the paper: no decay of lambda, attention W, norms, biases and embeddings
    dof_rate: PositiveFloat = 1e-2  # not in the paper: peak rate of a Student-t's degrees of freedom
    freeze_encoder: bool = False  # not in the paper: a head is trained on the pretrained encoder's representations
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    clip_norm: NonNegativeFloat = 1.0  # not printed; 0 switches clipping off
    mirror: bool = False  # not in the paper: half of the blocks seen with bid and ask exchanged
    patience: NonNegativeInt = 5  # not printed: validations without a better metric before stopping; 0 never stops early
    validate_every: PositiveInt = 1  # epochs
    select_from: PositiveInt = 1  # not printed: first epoch whose model may be kept (the last always may)
    checkpoint_every: PositiveInt = 1_000  # steps
    horizon_per_block: bool = False  # not in the paper: a block of a joint training teaches one horizon instead of all
    joint_epochs: PositiveInt | None = None  # not in the paper: epochs of a joint training, where they are not `epochs`

    @property
    def targets_per_step(self) -> int:
        """Targets per step of fine-tuning, which rates and schedule are chosen for. Pretraining takes `batch`."""
        return self.targets_per_block * self.blocks_per_step if self.sampling == "blocks" else self.batch


def _pretraining() -> StageConfig:
    # The printed rates are those of fine-tuning (encoder, head); the rate and batch of pretraining are not printed.
    return StageConfig(batch=64, encoder_rate=1e-4, head_rate=1e-4)


@dataclass(frozen=True, config=FORBID_UNKNOWN_KEYS)
class TrainingConfig:
    """A model and its two stages, complete: this is what a checkpoint carries."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    loss: RegressionLoss = field(default_factory=RegressionLoss)
    pretraining: StageConfig = field(default_factory=_pretraining)
    regression: StageConfig = field(default_factory=StageConfig)
    classification: StageConfig = field(default_factory=StageConfig)
    seed: NonNegativeInt = 42
    test_seed: NonNegativeInt = 999  # of the random numbers drawn when predicting (MC dropout, shuffled context labels)
    mc_dropout_passes: NonNegativeInt = 0  # not in the paper: predictions mix this many passes with dropout; 0: one without
    ensemble: PositiveInt = 1  # not in the paper: members per head, of seeds seed, seed + 1, ...; predictions are their mixture
    mirror_predictions: bool = False  # not in the paper: a head's forecasts mix those of the market and of the mirrored one
    # Not in the paper, which trains each model separately: one encoder and one trunk, with both decoders, for all horizons of a
    # symbol ("horizons"), or for all symbols and horizons ("universal"). Joint fine-tuning takes the settings of the stage
    # `regression` (uqlob_models/joint_training.py, universal_training.py).
    joint: Literal["none", "horizons", "universal"] = "none"
    store_dtype: Literal["float16", "float32"] = "float16"  # not printed
    device: Literal["auto", "cpu", "cuda"] = "auto"
    bf16: bool = True  # not printed: autocast on CUDA; without effect on the CPU
    compile: bool = False  # not printed: torch.compile of the encoder on CUDA

    def __post_init__(self) -> None:
        if self.mc_dropout_passes and not (self.encoder.dropout or self.head.dropout):
            raise ValueError(
                f"mc_dropout_passes is {self.mc_dropout_passes}, but encoder.dropout and head.dropout are 0: set one of them"
            )
        if self.head.linear_path and not self.encoder.summaries:
            raise ValueError("head.linear_path reads the window summaries: set encoder.summaries")

    def of_joint_training(self) -> TrainingConfig:
        """The settings with the epochs of a joint training, whose every step teaches all horizons and both outputs."""
        stages = {}
        for objective in OBJECTIVES:
            stage = self.stage(objective)
            epochs = stage.joint_epochs or stage.epochs
            select_from = max(round(stage.select_from * epochs / stage.epochs), 1)
            stages[objective] = replace(stage, epochs=epochs, select_from=select_from)
        return replace(self, **stages)  # type: ignore[arg-type]

    def stage(self, objective: Objective) -> StageConfig:
        stage: StageConfig = getattr(self, objective)
        return stage


def fingerprint(values: dict[str, Any]) -> str:
    """A short hash of plain JSON values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
