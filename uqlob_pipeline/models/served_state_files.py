"""Writes what a served head knows beside its weights, at the end of its training: see `uqlob_models.served_state`.

It is made from the forecasts of the validation days, as `calibrated_predictions` makes its own: settings are chosen on the
calibration half, and the calibrator has learnt every outcome of both halves.
"""

from typing import TYPE_CHECKING

import numpy as np

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.models.calibrated_predictions import timing_of
from uqlob_pipeline.models.stages import SERVED_STATE, StagePlan

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.model import UqModel
    from uqlob_models.prediction import Encode
    from uqlob_models.served_state import ServedState


def write_served_state(
    profile: Profile, plan: StagePlan, dataset: "WindowDataset", members: list["UqModel"], encode: "Encode | None" = None
) -> None:
    with atomic_path(plan.directory / SERVED_STATE, hashed=True) as temporary:
        temporary.write_text(served_state(profile, plan, dataset, members, encode).to_json())


def served_state(
    profile: Profile, plan: StagePlan, dataset: "WindowDataset", members: list["UqModel"], encode: "Encode | None" = None
) -> "ServedState":
    # Imported here to keep torch out of the code server.
    from uqlob_models.prediction import predict_classification, predict_regression
    from uqlob_models.recalibration import LiveCalibrator, OnlineCalibrator, choose_settings, recalibrate_with
    from uqlob_models.served_state import ServedState

    selection, calibration = (dataset.targets(split, profile.training.head.context) for split in ("selection", "calibration"))
    if members[0].kind == "classification":
        return ServedState.of(
            None, predict_classification(members, dataset, calibration, encode=encode).probabilities.max(axis=1)
        )
    targets, timing = np.concatenate([selection, calibration]), timing_of(profile, plan.key)
    raw = predict_regression(members, dataset, targets, encode=encode).distribution
    y, t, judged = dataset.y[targets], dataset.t_end[targets], np.arange(len(targets)) >= len(selection)
    calibrator = OnlineCalibrator()
    if judged.any():
        calibrator = OnlineCalibrator(choose_settings(raw, y, t, judged, **timing)[0])
    live = LiveCalibrator(timing["horizon_ns"], timing["latency_ns"], calibrator)
    published = recalibrate_with(live, raw, y, t)[judged]
    return ServedState.of(live, np.abs(published.mean()) / published.std())
