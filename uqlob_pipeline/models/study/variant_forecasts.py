"""What a variant forecasts: the heads of the paper, D-TABL by itself, or a plain model, each with what it cost.

Every variant of a table forecasts the same targets. Training reads the training and validation days alone.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uqlob_models.config import TrainingConfig
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.config.study import Variant
from uqlob_pipeline.lake.layout import Lake, StudyKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.models.predictions import distribution_columns, probability_columns
from uqlob_pipeline.models.study.shared_encoders import cached_array, representations, shared_encoder
from uqlob_pipeline.models.training_lock import training_lock

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset

TIMED = 64  # forecasts whose time is measured


@dataclass(frozen=True)
class VariantForecasts:
    """Columns as in `predictions`. `snr` gates a classifier of several passes or members in a second way."""

    columns: dict[str, Any]
    parameters: int
    core_seconds: float  # training of this row alone
    encoder_core_seconds: float  # pretraining, which other rows share
    milliseconds_per_forecast: float
    snr: Any = None


@dataclass(frozen=True)
class RowInputs:
    """What every method is given."""

    lake: Lake
    profile: Profile
    variant: Variant
    key: StudyKey
    config: TrainingConfig
    training_days: "WindowDataset"
    every_day: "WindowDataset"
    targets: Any
    log: LogFn


def forecast_variant(row: RowInputs) -> VariantForecasts:
    if row.variant.method == "head":
        return _head(row)
    return _encoder(row) if row.variant.method == "encoder" else _plain(row)


def training_home(row: RowInputs) -> Path:
    """Where the head of a row is trained; an interrupted training resumes from its checkpoints here."""
    return row.lake.by_study_row("study/trainings", row.key).with_suffix("")


def _head(row: RowInputs) -> VariantForecasts:
    from uqlob_models import training
    from uqlob_models.checkpoints import CheckpointError, load_model
    from uqlob_models.frozen import FrozenWindows
    from uqlob_models.learner import Learner, choose_device
    from uqlob_models.parameter_table import parameters
    from uqlob_models.prediction import predict_classification, predict_regression
    from uqlob_models.training import SEPARATE

    kind = row.variant.forecasts
    device = choose_device(row.config)
    pretrain_members(row)
    members, known, trained, encoder_seconds = [], None, 0.0, 0.0
    for number in range(row.config.ensemble):
        config = replace(row.config, seed=row.config.seed + number)
        encoder = shared_encoder(row.lake, row.key.model, row.training_days, config, row.log)
        encoder_seconds += encoder.core_seconds
        frozen = config.stage(kind).freeze_encoder
        known = representations(encoder, row.every_day, device, row.log) if frozen else None
        early = FrozenWindows.of_all(known.hidden[:, : len(row.training_days)]) if known else None
        home = training_home(row) / f"member-{number + 1}"
        hooks = replace(SEPARATE, learner=partial(Learner, known=early))
        options: dict[str, Any] = {"encoder": encoder.best, "hooks": hooks}
        with training_lock(row.lake, home, row.log):
            started = time.process_time()
            try:
                result = training.train(kind, row.training_days, config, home, **options)
            except CheckpointError as error:  # of other settings or data: the row is stale, and so is this training
                row.log(f"{row.key}: training afresh: {error}")
                result = training.train(kind, row.training_days, config, home, **options, fresh=True)
            trained += time.process_time() - started
        row.log(f"{row.key}: {result.metric} {result.best_metric:.4f} on the selection half")
        members.append(load_model(result.model, device).uq_model())
    passes = row.config.mc_dropout_passes
    # Each member of an ensemble has an encoder of its own, and dropout needs the encoder itself.
    encode = known.encode if known is not None and len(members) == 1 and not passes else None

    def forecast(targets: Any, encode: Any) -> dict[str, Any]:
        ways: dict[str, Any] = {"mc_dropout_passes": passes, "encode": encode}
        if kind == "regression":
            return distribution_columns(predict_regression(members, row.every_day, targets, **ways).distribution)
        return probability_columns(predict_classification(members, row.every_day, targets, **ways).probabilities)

    columns = forecast(row.targets, encode)
    milliseconds = _milliseconds_of(lambda targets: forecast(targets, None), row)
    size = sum(parameters(model) for model in members)
    return VariantForecasts(columns, size, trained, encoder_seconds, milliseconds)


def clear_training(row: RowInputs) -> None:
    """The row is written: its checkpoints and weights are not needed any more, unless other days are to be forecast."""
    if not row.profile.study.keep_models:
        shutil.rmtree(training_home(row), ignore_errors=True)


def pretrain_members(row: RowInputs) -> None:
    """Pretrains the encoders of an ensemble, those of odd seeds from the first and of even seeds from the last member: two
    processes with neighbouring seeds, which share members, seldom wait for each other."""
    numbers = range(row.config.ensemble)
    for number in numbers if row.key.seed % 2 else reversed(numbers):
        config = replace(row.config, seed=row.config.seed + number)
        shared_encoder(row.lake, row.key.model, row.training_days, config, row.log)


def _encoder(row: RowInputs) -> VariantForecasts:
    from uqlob_models.checkpoints import load_model
    from uqlob_models.encoder_forecasts import direction_snr, encoder_probabilities
    from uqlob_models.learner import choose_device
    from uqlob_models.parameter_table import parameters

    device = choose_device(row.config)
    pretrain_members(row)
    encoders, encodes, seconds = [], [], 0.0
    for number in range(row.config.ensemble):
        config = replace(row.config, seed=row.config.seed + number)
        shared = shared_encoder(row.lake, row.key.model, row.training_days, config, row.log)
        seconds += shared.core_seconds
        encoders.append(load_model(shared.best, device).encoder())
        if not row.config.mc_dropout_passes:
            encodes.append(representations(shared, row.every_day, device, row.log).encode)
    options: dict[str, Any] = {
        "passes": row.config.mc_dropout_passes,
        "mirrored": row.config.mirror_predictions,
        "seed": row.config.test_seed,
    }
    every = encoder_probabilities(encoders, row.every_day, row.targets, encodes=encodes, **options)
    milliseconds = _milliseconds_of(lambda targets: encoder_probabilities(encoders, row.every_day, targets, **options), row)
    size = sum(parameters(encoder) for encoder in encoders)
    columns = probability_columns(every.mean(axis=0))
    return VariantForecasts(columns, size, 0.0, seconds, milliseconds, direction_snr(every))


def _plain(row: RowInputs) -> VariantForecasts:
    from uqlob_models.dataset import CALIBRATION
    from uqlob_models.plain_models import ewma_forecasts, fit_and_forecast, window_summaries

    dataset = row.every_day
    started = time.process_time()
    if row.variant.method == "ewma":
        fitted = dataset.split[row.targets] == CALIBRATION
        found = ewma_forecasts(dataset, row.targets, fitted)
    else:
        key = row.key.model
        place = row.lake.study / "summaries" / f"symbol={key.symbol}" / f"horizon={key.horizon_s}"
        path = place / f"summaries-{dataset.data_version()}.npy"
        summaries = cached_array(path, lambda: window_summaries(dataset), f"summaries of {len(dataset)} windows", row.log)
        started = time.process_time()
        found = fit_and_forecast(
            row.variant.method,
            dataset,
            row.targets,
            summaries,
            context=row.config.head.context,
            with_context=row.variant.context_statistics,
            inputs=row.variant.inputs,
            seed=row.config.seed,
        )
    trained = time.process_time() - started
    columns = (
        probability_columns(found.probabilities)
        if found.probabilities is not None
        else distribution_columns(_required(found.distribution))
    )
    milliseconds = 1000 * found.seconds / max(len(row.targets), 1)
    return VariantForecasts(columns, found.parameters, trained, 0.0, milliseconds)


def _required(distribution: Any) -> Any:
    assert distribution is not None
    return distribution


def _milliseconds_of(forecast: Callable[[Any], Any], row: RowInputs) -> float:
    """Of a core per forecast of the last few targets at once, their windows encoded and not looked up."""
    timed = row.targets[-TIMED:]
    started = time.process_time()
    forecast(timed)
    return 1000 * (time.process_time() - started) / max(len(timed), 1)


def eligible_targets(profile: Profile, variant: Variant, config: TrainingConfig, dataset: "WindowDataset") -> Any:
    """The targets of the test days, and for a regression those of both validation halves, which recalibrate it.

    They are those of the profile's context, for every variant, so that all are judged on the same forecasts. A variant with a
    longer context has a few less.
    """
    size = max(profile.training.head.context, config.head.context)
    splits = ("selection", "calibration", "test") if variant.forecasts == "regression" else ("test",)
    return np.concatenate([dataset.targets(split, size) for split in splits])
