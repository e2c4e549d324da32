"""The gain of a second core: as a second thread of one training, or for a second training in parallel."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uqlob_models.config import TrainingConfig

WINDOWS = 640


def targets_per_second(config: TrainingConfig, threads: int, seconds: float) -> float:
    """Wall-clock speed of fine-tuning with the given number of threads."""
    # Imported here so that other commands start fast.
    import torch

    from uqlob_models.learner import Learner
    from uqlob_models.sampling import Sampler, assemble, block_rows
    from uqlob_pipeline.devtools.bench.synthetic_windows import synthetic_windows

    torch.set_num_threads(threads)
    dataset, size = synthetic_windows(WINDOWS, config.encoder.window_length), config.head.context
    learner = Learner("regression", dataset, config, total_steps=10_000)
    selection = Sampler(dataset.targets("train", size), config.regression, "blocks", seed=0).epoch(0)[0]
    rows = block_rows(selection, dataset.context(size).windows(selection.targets))
    batch = assemble(dataset, rows, selection, dataset.context_labels())
    learner.learn(batch, 0)
    steps, started = 0, time.monotonic()
    while time.monotonic() - started < seconds:
        learner.learn(batch, 0)
        steps += 1
    return steps * len(selection.targets) / (time.monotonic() - started)


def second_core(config: TrainingConfig, seconds: float = 8.0) -> dict[str, float]:
    """Each variant in its own processes, one after the other, with the demo's 128 targets per step."""
    config = replace(config, regression=replace(config.regression, targets_per_block=32, blocks_per_step=4))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        warm = [pool.submit(targets_per_second, config, 1, seconds / 4) for _ in range(2)]  # imports, in both processes
        for started in warm:
            started.result()
        alone = pool.submit(targets_per_second, config, 1, seconds).result()
        threads = pool.submit(targets_per_second, config, 2, seconds).result()
        beside = [pool.submit(targets_per_second, config, 1, seconds) for _ in range(2)]
        both = sum(one.result() for one in beside)
    return {
        "targets_per_second_one_thread": alone,
        "targets_per_second_two_threads": threads,
        "targets_per_second_two_trainings": both,
        "ratio_two_threads": threads / alone,
        "ratio_two_trainings": both / alone,
    }
