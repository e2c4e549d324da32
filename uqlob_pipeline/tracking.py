"""MLflow as a resource: one experiment a profile, one parent run a model, one run a stage below it.

Everything goes through a journal (`tracking_journal`), so that MLflow can be away without anything failing or getting lost.
MLflow itself is imported on the first delivery, never by the code server.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from uqlob_models.outcomes import TrainingInterrupted
from uqlob_pipeline.lake import Lake, ModelKey, atomic_path
from uqlob_pipeline.model_inputs import Say
from uqlob_pipeline.profile import Profile
from uqlob_pipeline.tracking_journal import Entry, Journal, RunIdentity, open_journal
from uqlob_pipeline.tracking_store import Store

MLFLOW_UI, DAGSTER_UI = "UQLOB_MLFLOW_UI", "UQLOB_DAGSTER_UI"
JOURNAL = "tracking.jsonl"
CUT_SHORT = (
    "its first line was cut short by a crash or a full disk and does not say of which run it is. It is kept, and mended when "
    "that run is told of again; remove it if that is not to be"
)
FIRST_WAIT_S, LONGEST_WAIT_S = 15.0, 300.0


def now_ms() -> int:
    return int(time.time() * 1000)


def flattened(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted names."""
    found: dict[str, Any] = {}
    for name, value in section.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, dict):
            found |= flattened(value, key)
        else:
            found[key] = value
    return found


class Tracking:
    """The tracking store of a lake. `MLFLOW_TRACKING_URI` names another one than the lake's own."""

    def __init__(self, lake: Lake, profile: Profile, uri: str | None = None) -> None:
        self.lake, self.profile = lake, profile
        self.given = uri or os.environ.get("MLFLOW_TRACKING_URI")
        self.uri = self.given or f"sqlite:///{lake.mlflow / 'mlflow.db'}"
        self.experiment = f"uqlob {profile.name}"
        self.ui = os.environ.get(MLFLOW_UI, "http://127.0.0.1:5000").rstrip("/")
        self.dagster_ui = os.environ.get(DAGSTER_UI, "http://127.0.0.1:3000").rstrip("/")
        self._store: Store | None = None
        self._retry_at, self._wait = 0.0, FIRST_WAIT_S

    # ---- identities

    def model(self, key: ModelKey) -> RunIdentity:
        return RunIdentity(str(key), "model", str(key))

    def stage(self, key: ModelKey, stage: str, data_version: str) -> RunIdentity:
        """The training of a stage on this data: the first, or the one last begun afresh."""
        first = RunIdentity(f"{key} {stage}", stage, str(key), data_version, self.model(key))
        path = self._directory / f"{first.slug}.trainings"
        training = int(path.read_text()) if path.is_file() else 1
        return replace(first, name=f"{first.name} ({training})", training=training) if training > 1 else first

    def begin_afresh(self, key: ModelKey, stage: str, data_version: str) -> RunIdentity:
        """The same data trained on once more: a run of its own, also for whoever goes on with that training."""
        now = self.stage(key, stage, data_version)
        with atomic_path(self._directory / f"{replace(now, training=1).slug}.trainings") as temporary:
            temporary.write_text(str(now.training + 1))
        return self.stage(key, stage, data_version)

    def fits(self, symbol: str) -> RunIdentity:
        return RunIdentity(f"{symbol} bins, scales and thresholds", "fits", symbol)

    def dataset(self) -> RunIdentity:
        return RunIdentity("dataset profile", "dataset", self.profile.name)

    def report(self) -> RunIdentity:
        return RunIdentity("paper report", "report", self.profile.name)

    # ---- runs

    def open(self, identity: RunIdentity, journal: Path | None = None, say: Say | None = None) -> "TrackedRun":
        path = journal or self._directory / f"{identity.slug}.jsonl"
        return TrackedRun(self, Journal(path, identity), say or (lambda text: None))

    @contextmanager
    def under_way(self, identity: RunIdentity, journal: Path | None = None, say: Say | None = None) -> Iterator["TrackedRun"]:
        """A run that is marked as running while the block lasts, and then by how it ended."""
        run = self.open(identity, journal, say)
        run.add("start")
        run.deliver()
        try:
            yield run
        except BaseException as error:
            stopped = isinstance(error, TrainingInterrupted) or not isinstance(error, Exception)
            why = str(error) or "cancelled; materialise it again to go on"
            run.end("KILLED" if stopped else "FAILED", why)
            raise
        run.end("FINISHED")

    def deliver(self, journal: Journal, say: Say, *, now: bool = False) -> bool:
        """Try to hand a journal over; True if nothing of it waits any more. Never raises what MLflow raises."""
        if not now and time.monotonic() < self._retry_at:
            return False
        try:
            store = self.store()
            journal.deliver(lambda entry: store.take(journal.identity, entry))
            self._remember(journal.identity, store)
        except Exception as error:  # whatever a store raises that is away, full or locked: tracking must not stop the work
            say(f"MLflow at {self.uri} does not take {journal.identity.name}: {_first_line(error)}; kept in {journal.path}")
            self._store = None
            self._retry_at = time.monotonic() + self._wait
            self._wait = min(2 * self._wait, LONGEST_WAIT_S)
            return False
        self._retry_at, self._wait = 0.0, FIRST_WAIT_S
        return True

    def flush_pending(self, say: Say | None = None) -> int:
        """Deliver what earlier processes could not; returns how many journals still wait."""
        say = say or (lambda text: None)
        waiting, asked = 0, False  # a store that did not answer is not asked again at once
        for path in self.pending():
            journal = open_journal(path)
            if journal is not None:
                delivered = self.deliver(journal, say, now=not asked)
                asked = asked or not delivered
            else:
                delivered = not path.exists()  # another process has just delivered it
                if not delivered:
                    say(f"{path}: {CUT_SHORT}")
            waiting += not delivered
        return waiting

    def pending(self) -> list[Path]:
        return sorted([*self._directory.glob("*.jsonl"), *(self.lake.root / "models").glob(f"*/*/*/*-{JOURNAL}")])

    def store(self) -> Store:
        if self._store is None:
            self._store = Store(self.uri, self.experiment, self.lake, local=self.given is None)
        return self._store

    def place(self, path: Path) -> str:
        """A path as a journal keeps it: within the lake, from its root, so that the lake can be moved."""
        return str(path.relative_to(self.lake.root) if path.is_relative_to(self.lake.root) else path)

    # ---- links, known without asking MLflow

    @property
    def _directory(self) -> Path:
        return self.lake.root / "tracking"

    def _remember(self, identity: RunIdentity, store: Store) -> None:
        for known in (identity, identity.parent):
            if known is None:
                continue
            said = json.dumps({"uri": self.uri, "experiment_id": store.experiment_id, "run_id": store.run_id(known)})
            path = self._directory / f"{known.slug}.json"
            if not path.exists() or path.read_text() != said:
                with atomic_path(path) as temporary:
                    temporary.write_text(said)

    def mark_complete(self, run: "TrackedRun", version: str) -> None:
        """Note that all there is to say of a version was taken, so that nobody says it again."""
        if not run.journal.entries():
            with atomic_path(self._directory / f"{run.journal.identity.slug}.done") as temporary:
                temporary.write_text(json.dumps({"uri": self.uri, "version": version}))

    def is_complete(self, identity: RunIdentity, version: str) -> bool:
        path = self._directory / f"{identity.slug}.done"
        return path.exists() and json.loads(path.read_text()) == {"uri": self.uri, "version": version}

    def url(self, identity: RunIdentity) -> str | None:
        """The run's page in the MLflow UI; None where MLflow has not taken anything of it yet."""
        path = self._directory / f"{identity.slug}.json"
        if not path.exists():
            return None
        said = json.loads(path.read_text())
        if said["uri"] != self.uri:
            return None
        return f"{self.ui}/#/experiments/{said['experiment_id']}/runs/{said['run_id']}"


class TrackedRun:
    """What is said of one MLflow run. Each call is on disk when it returns, and in MLflow after the next delivery."""

    def __init__(self, tracking: Tracking, journal: Journal, say: Say) -> None:
        self.tracking, self.journal, self.say = tracking, journal, say

    @property
    def url(self) -> str | None:
        return self.tracking.url(self.journal.identity)

    def add(self, op: str, **entry: Any) -> None:
        said: Entry = {"op": op, **entry}
        self.journal.add(said)

    def tags(self, values: dict[str, Any]) -> None:
        self.add("tags", values={name: str(value) for name, value in values.items()})

    def params(self, section: dict[str, Any]) -> None:
        self.add("params", values={name: str(value) for name, value in flattened(section).items()})

    def metrics(self, values: dict[str, float], step: int = 0, time: int | None = None) -> None:
        """The same values of the same time, told again, are the same points."""
        self.add("metrics", values=values, step=step, time=time or now_ms())

    def artifact(self, path: Path, to: str = "", **entry: Any) -> None:
        self.add("artifact", path=self.tracking.place(path), to=to or None, **entry)

    def deliver(self, *, now: bool = False) -> bool:
        return self.tracking.deliver(self.journal, self.say, now=now)

    def end(self, status: str, why: str = "") -> None:
        self.add("end", status=status, why=why, time=now_ms())
        self.deliver(now=True)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
