"""The outbox of tracking: what is to be told to MLflow stands in a file first, and leaves it when MLflow has taken it.

So a store that goes away takes nothing with it and stops no training: what could not be delivered waits, one JSON line an
entry, for the next delivery. Entries may be delivered twice after a crash; each of them is such that this changes nothing.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from uqlob_pipeline.lake import atomic_path

Entry = dict[str, Any]
READ_BACK = 1 << 16
TRAINING_TAG = "uqlob.training"


@dataclass(frozen=True)
class RunIdentity:
    """Which MLflow run is meant: the same identity is the same run, however often and by whichever process."""

    name: str  # what a person sees
    kind: str  # a stage, `model`, `fits`, `dataset`, `report`
    key: str  # what it is about: `BTC-USD 5s`, a symbol or a profile
    data_version: str = ""  # where another version is another run
    parent: "RunIdentity | None" = None
    training: int = 1  # counts the times that the same data was trained on afresh; going on with a training is none

    def tags(self) -> dict[str, str]:
        said = {"uqlob.kind": self.kind, "uqlob.key": self.key, "uqlob.data_version": self.data_version}
        said[TRAINING_TAG] = self._afresh
        return {name: value for name, value in said.items() if value}

    @property
    def slug(self) -> str:
        return "-".join(part for part in (self.kind, self.key.replace(" ", "-"), self.data_version, self._afresh) if part)

    @property
    def _afresh(self) -> str:
        return str(self.training) if self.training > 1 else ""

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> "RunIdentity":
        parent = said.get("parent")
        return cls(**{**said, "parent": cls.from_dict(parent) if parent else None})


class Journal:
    """Entries of one run that MLflow has not taken yet."""

    def __init__(self, path: Path, identity: RunIdentity) -> None:
        self.path, self.identity = path, identity

    def add(self, entry: Entry) -> None:
        """Keep an entry on disk; it survives the process. What a crash or a full disk cut short before it is mended first."""
        with self._locked():
            if open_journal(self.path) is None:  # new, or without a whole first line
                self._rewrite([*self.entries(), entry])
                return
            with open(self.path, "r+b") as file:
                file.truncate(_end_of_last_line(file))
                file.seek(0, os.SEEK_END)
                file.write(json.dumps(entry).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def entries(self) -> list[Entry]:
        """What waits. A last line that a crash cut short is left out: it was never promised."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return [entry for entry in found if entry["op"] != "run"]

    def deliver(self, take: Callable[[Entry], None]) -> None:
        """Hand over what waits, in order. Where `take` raises, that entry and those behind it stay."""
        with self._locked():
            waiting = self.entries()
            taken = 0
            try:
                for entry in waiting:
                    take(entry)
                    taken += 1
            finally:
                if taken == len(waiting):
                    self.path.unlink(missing_ok=True)
                elif taken:
                    self._rewrite(waiting[taken:])

    def _rewrite(self, entries: list[Entry]) -> None:
        first = {"op": "run", "identity": asdict(self.identity)}
        with atomic_path(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in [first, *entries]))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_name(".journal.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def open_journal(path: Path) -> Journal | None:
    """A journal that another process left; None where its first line does not say of which run."""
    try:
        with open(path, encoding="utf-8") as file:
            first = json.loads(file.readline())
        return Journal(path, RunIdentity.from_dict(first["identity"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _end_of_last_line(file: BinaryIO) -> int:
    """Where the last whole line ends, read from the back: lines are long where every epoch is told once more."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - READ_BACK, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
