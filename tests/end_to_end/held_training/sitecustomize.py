"""Put on PYTHONPATH, holds every training of a process at its third step until a signal arrives or it is released.

The test then does not depend on whether the signal or the end of the training comes first. The process leaves a file in the
directory that HELD_TRAININGS names when it is held. While that directory has a file called `released`, nothing is held.
HELD_STEP names another step than the third.
"""

import importlib.abc
import importlib.util
import os
import sys
import threading
from pathlib import Path

STEP = int(os.environ.get("HELD_STEP", "3"))


class HeldEvent(threading.Event):
    """The event that a signal sets; the training asks for it once per step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def is_set(self) -> bool:
        self.steps += 1
        directory = Path(os.environ["HELD_TRAININGS"])
        if self.steps == STEP and not (directory / "released").exists():
            (directory / str(os.getpid())).touch()
            while not self.wait(0.2) and not (directory / "released").exists():
                pass
        return super().is_set()


class Threading:
    """The module `threading` with the event above."""

    Event = HeldEvent

    def __getattr__(self, name: str) -> object:
        return getattr(threading, name)


class PatchTraining(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "uqlob_models.training":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_patch(module) -> None:
            execute(module)
            module.threading = Threading()

        spec.loader.exec_module = execute_and_patch
        return spec


if "HELD_TRAININGS" in os.environ:
    sys.meta_path.insert(0, PatchTraining())
