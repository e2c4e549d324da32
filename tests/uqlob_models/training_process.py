"""A training in its own process, which waits to be killed after a given number of steps.

Usage: python -m tests.uqlob_models.training_process <directory> [<steps>]
"""

import sys
import threading
from pathlib import Path

import torch

from tests.uqlob_models.toy_windows import config, dataset, stage
from uqlob_models.training import train


def settings():  # type: ignore[no-untyped-def]
    return config(regression=stage(epochs=3, mirror=True, checkpoint_every=5))


if __name__ == "__main__":
    torch.set_num_threads(1)
    steps_left = int(sys.argv[2]) if len(sys.argv) > 2 else -1

    def stop() -> bool:
        global steps_left
        steps_left -= 1
        if steps_left == 0:
            print("waiting", flush=True)
            threading.Event().wait()
        return False

    result = train("regression", dataset(n=400, unknown=0.1), settings(), Path(sys.argv[1]), stop=stop)
    print(f"finished after {result.steps} steps")
