"""The outbox: entries for one MLflow run wait in a JSONL file until MLflow has accepted them.

A tracking store that is unreachable loses nothing and stops no training: undelivered entries stay in the file, one JSON line
each, for the next delivery. After a crash an entry may be delivered twice; every entry is idempotent.

The file lock excludes the processes of one directory. In a lake in a store another machine may deliver an outbox that is still
being added to: there an outbox is only ever extended or removed (`SharedFiles.publish` removes it if nobody has extended it).
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from uqlob_pipeline.lake.atomic_files import atomic_path

Entry = dict[str, Any]
READ_BLOCK = 1 << 16
TRAINING_TAG = "uqlob.training"


@dataclass(frozen=True)
class RunIdentity:
    """Identifies an MLflow run: the same identity is the same run in every process."""

    name: str  # the run name that MLflow shows
    kind: str  # a stage, `model`, `fits`, `dataset`, `report`
    key: str  # what it is about: `BTC-USD 5s`, a symbol or a profile
    data_version: str = ""  # where another version is another run
    parent: "RunIdentity | None" = None
    training: int = 1  # counts fresh trainings on the same data; resuming a training does not increase it

    def tags(self) -> dict[str, str]:
        tags = {"uqlob.kind": self.kind, "uqlob.key": self.key, "uqlob.data_version": self.data_version}
        tags[TRAINING_TAG] = self._repetition
        return {name: value for name, value in tags.items() if value}

    @property
    def slug(self) -> str:
        return "-".join(part for part in (self.kind, self.key.replace(" ", "-"), self.data_version, self._repetition) if part)

    @property
    def _repetition(self) -> str:
        return str(self.training) if self.training > 1 else ""

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "RunIdentity":
        parent = fields.get("parent")
        return cls(**{**fields, "parent": cls.from_dict(parent) if parent else None})


class Outbox:
    """Entries of one run that MLflow has not accepted yet; `shared` where other machines may add to it or deliver it."""

    def __init__(self, path: Path, identity: RunIdentity, *, shared: bool = False) -> None:
        self.path, self.identity, self.shared = path, identity, shared

    def add(self, entry: Entry) -> None:
        """Append an entry durably. A line that a crash or a full disk truncated is removed first."""
        with self._lock():
            if open_outbox(self.path) is None:  # new, or without a complete first line
                self._rewrite([*self.entries(), entry])
                return
            with open(self.path, "r+b") as file:
                file.truncate(_end_of_last_line(file))
                file.seek(0, os.SEEK_END)
                file.write(json.dumps(entry).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def entries(self) -> list[Entry]:
        """The pending entries. A truncated last line is skipped: its `add` never returned."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return [entry for entry in found if entry["op"] != "run"]

    def deliver(self, send: Callable[[Entry], None]) -> None:
        """Send the pending entries in order. If `send` raises, that entry and those after it stay; all of them if shared."""
        with self._lock():
            pending = self.entries()
            sent = 0
            try:
                for entry in pending:
                    send(entry)
                    sent += 1
            finally:
                if sent == len(pending):
                    self.path.unlink(missing_ok=True)
                elif sent and not self.shared:
                    self._rewrite(pending[sent:])

    def _rewrite(self, entries: list[Entry]) -> None:
        first = {"op": "run", "identity": asdict(self.identity)}
        with atomic_path(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in [first, *entries]))

    def _lock(self) -> FileLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_name(".outbox.lock"))


def open_outbox(path: Path, *, shared: bool = False) -> Outbox | None:
    """The outbox that another process left; None if its first line does not name the run."""
    try:
        with open(path, encoding="utf-8") as file:
            first = json.loads(file.readline())
        return Outbox(path, RunIdentity.from_dict(first["identity"]), shared=shared)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _end_of_last_line(file: BinaryIO) -> int:
    """Offset behind the last complete line, searched from the end of the file: lines with all epochs are long."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - READ_BLOCK, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
