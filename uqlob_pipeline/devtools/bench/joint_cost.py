"""What a joint training costs, in core-seconds, beside one training per horizon and output, with the demo's recipe."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uqlob_models.config import TrainingConfig

HORIZONS_S = (5, 10, 15)


def joint_cost(config: TrainingConfig, windows: int = 640, length: int = 512) -> dict[str, float]:
    """Both ways on the same synthetic windows, on one thread. `joint_core_seconds_ratio` is joint over separate."""
    from uqlob_models.joint_dataset import JointDataset
    from uqlob_pipeline.devtools.bench.joint_models import train_apart, train_together
    from uqlob_pipeline.devtools.bench.synthetic_windows import synthetic_windows

    datasets = [synthetic_windows(windows, length, seed=1, horizon_s=horizon) for horizon in HORIZONS_S]
    with tempfile.TemporaryDirectory(prefix="uqlob-joint-cost-") as directory:
        root = Path(directory)
        _, joint = train_together(root / "joint", JointDataset(tuple(datasets)), config, lambda line: None)
        separate = [
            train_apart(root / f"separate-{horizon}", dataset, config, lambda line: None)[1]
            for horizon, dataset in zip(HORIZONS_S, datasets, strict=True)
        ]
    return {
        "joint_core_seconds": joint,
        "separate_core_seconds": sum(separate),
        "joint_core_seconds_ratio": joint / sum(separate),
    }
