"""The Gaussian head, a reference of the interval benchmark: the paper's likelihood and losses on the same frozen representations.

Encoder, context, epochs, rates and data are those of the lake's own regression head. Only the likelihood and the losses differ.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.layout import Lake, ModelKey

if TYPE_CHECKING:
    import numpy as np

    from uqlob_models.config import TrainingConfig
    from uqlob_models.distributions import ZeroInflatedT


def gaussian_config(config: TrainingConfig) -> TrainingConfig:
    """The same recipe with the paper's likelihood and loss weights, on a frozen encoder."""
    from uqlob_models.config import RegressionLoss

    return replace(
        config,
        head=replace(config.head, likelihood="gaussian"),
        loss=RegressionLoss(),
        regression=replace(config.regression, freeze_encoder=True),
    )


def gaussian_forecasts(lake: Lake, profile: Profile, key: ModelKey, directory: Path, t: np.ndarray) -> ZeroInflatedT:
    """Train the head in `directory`, or reuse it there, and forecast the targets of `predictions`, whose window ends are `t`."""
    # Imported here so that other commands start fast.
    import numpy as np

    from uqlob_models.checkpoints import load_members
    from uqlob_models.learner import choose_device
    from uqlob_models.prediction import predict_regression
    from uqlob_models.training import train
    from uqlob_pipeline.models.inputs import ALL_SPLITS, gather_inputs, load_windows
    from uqlob_pipeline.models.predictions import PREDICTED_SPLITS
    from uqlob_pipeline.models.stages import plan_stage

    plan, config = plan_stage(lake, profile, key, "uq_regression"), gaussian_config(profile.training)
    # Trained on the windows of training and validation days alone, as the lake's own head is.
    trained = train("regression", load_windows(lake, profile, plan.inputs), config, directory, encoder=plan.encoder)
    inputs = gather_inputs(lake, profile, key, ALL_SPLITS, needed_by="the benchmark")
    dataset = load_windows(lake, profile, inputs)
    targets = np.concatenate([dataset.targets(split, config.head.context) for split in PREDICTED_SPLITS])
    if not np.array_equal(dataset.t_end[targets], t):
        raise RuntimeError(
            f"{key}: the predictions in {lake.root} are of other windows than its labels: materialise predictions of {key} again"
        )
    members = load_members([trained.model], choose_device(config))
    return predict_regression(members, dataset, targets, mc_dropout_passes=config.mc_dropout_passes).distribution
