"""CPU time of a command's processes while it runs, sampled, so that waiting can be told from computing on a busy machine."""

from __future__ import annotations

import threading
import time

import psutil

SAMPLE_EVERY_S = 0.25


class ProcessCpu:
    """Samples the CPU seconds of a process and of everything below it until it is closed."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._samples: dict[int, list[tuple[float, float]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> ProcessCpu:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY_S):
            try:
                processes = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in processes:
                try:
                    times = process.cpu_times()
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                self._samples.setdefault(process.pid, []).append((time.time(), times.user + times.system))

    def between(self, start: float, end: float, *, pids: set[int] | None = None, without: set[int] | None = None) -> float:
        """CPU seconds from `start` to `end` (seconds since 1970) of these processes, or of all without some."""
        chosen = (set(self._samples) if pids is None else pids) - (without or set())
        return sum(self._at(pid, end) - self._at(pid, start) for pid in chosen)

    def _at(self, pid: int, moment: float) -> float:
        """CPU seconds of a process up to its last sample before `moment`; 0 before its first one."""
        return max((cpu for sampled, cpu in self._samples.get(pid, []) if sampled <= moment), default=0.0)
