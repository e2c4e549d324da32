"""Trainings of other processes that wait at a step until they are signalled."""

import os
import time
from collections.abc import Callable
from pathlib import Path

MOST_SECONDS = 300
RELEASED = "released"
HOOK = Path(__file__).parent / "held_training"


def held_environment(directory: Path) -> dict[str, str]:
    """Environment variables with which every training of a process is held at its third step."""
    directory.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(HOOK), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "HELD_TRAININGS": str(directory)}


def wait_until_held(
    directory: Path, count: int, alive: Callable[[], bool], output: Callable[[], str], seconds: float = 300
) -> list[int]:
    """The process numbers of the held trainings, once there are `count` of them."""
    until = time.monotonic() + MOST_SECONDS
    while len(held := [int(path.name) for path in directory.iterdir() if path.name != RELEASED]) < count:
        assert alive(), output()
        assert time.monotonic() < until, f"{len(held)} of {count} trainings reached the held step"
        time.sleep(0.05)
    return held
