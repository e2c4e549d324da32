"""The quality of block sampling and instance sampling, in the configuration whose speed is measured."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from uqlob_models.config import TrainingConfig
    from uqlob_models.dataset import WindowDataset

SEEDS = (1, 2, 3)
Sampled = Literal["blocks", "instances"]


def both_samplings(config: TrainingConfig) -> dict[Sampled, TrainingConfig]:
    """The same fine-tuning with either sampling and equally many targets per step, for both speed and quality."""
    stage = replace(config.regression, sampling="blocks")
    instances = replace(stage, sampling="instances", batch=stage.targets_per_step)
    return {"blocks": replace(config, regression=stage), "instances": replace(config, regression=instances)}


def same_quality(dataset: WindowDataset, config: TrainingConfig, steps: int = 32) -> dict[str, Any]:
    """Validation metrics of blocks and instances after the same number of targets and of steps, for three seeds of each.

    Both start from one pretrained encoder. Whole epochs are trained: the smallest number that gives at least `steps`.
    """
    # Imported here so that other commands start fast.
    import numpy as np

    from uqlob_models.training import train

    targets = len(dataset.targets("train", config.head.context))
    epochs = -(-steps * config.regression.targets_per_step // targets)
    found: dict[str, list[dict[str, float]]] = {"blocks": [], "instances": []}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        pretraining = replace(config.pretraining, epochs=4, batch=16)
        encoder = train("pretraining", dataset, replace(config, pretraining=pretraining), directory / "encoder").model
        for sampling, timed in both_samplings(config).items():
            for seed in SEEDS:
                stage = replace(timed.regression, epochs=epochs, validate_every=epochs)
                settings = replace(timed, seed=seed, regression=stage)
                result = train("regression", dataset, settings, directory / f"{sampling}-{seed}", encoder=encoder)
                found[sampling].append(result.history[-1])
    report: dict[str, Any] = {"targets_per_step": config.regression.targets_per_step, "targets": epochs * targets}
    within = True
    for metric in ("weighted_r2", "nlpd"):
        values = {name: [record[f"validation/{metric}"] for record in records] for name, records in found.items()}
        difference = abs(float(np.mean(values["blocks"]) - np.mean(values["instances"])))
        spread = max(float(np.ptp(seeds)) for seeds in values.values())
        report[metric] = {**values, "difference_of_means": difference, "spread_of_seeds": spread}
        within &= difference <= spread
    return {**report, "within_seed_spread": within}
