"""A training in its own process, slow enough to kill: python -m tests.models.training_process <directory> <seconds a step>."""

import sys
import time
from pathlib import Path

import torch

from tests.models.toy_windows import config, dataset, stage
from uqlob_models.training import train


def settings():  # type: ignore[no-untyped-def]
    return config(regression=stage(epochs=3, mirror=True, checkpoint_every=5))


if __name__ == "__main__":
    torch.set_num_threads(1)
    pause = float(sys.argv[2])

    def stop() -> bool:
        time.sleep(pause)
        return False

    result = train("regression", dataset(n=400, unknown=0.1), settings(), Path(sys.argv[1]), stop=stop)
    print(f"finished after {result.steps} steps")
