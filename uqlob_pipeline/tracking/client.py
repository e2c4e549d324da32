"""The tracking resource: one MLflow experiment per profile, one parent run per model, one child run per stage, and one run per
symbol for a joint training of all its horizons.

Everything goes through an outbox file (`tracking/outbox.py`), so an unreachable MLflow neither fails a run nor loses data.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from uqlob_models.training_result import TrainingInterrupted
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.tracking.mlflow_store import Store
from uqlob_pipeline.tracking.outbox import Outbox, RunIdentity, open_outbox

MLFLOW_UI, DAGSTER_UI = "UQLOB_MLFLOW_UI", "UQLOB_DAGSTER_UI"
TRAINING_MODE = "workflowType=machine_learning"  # without it MLflow opens in its mode for language models
OUTBOX = "tracking.jsonl"
TRUNCATED = (
    "its first line, which names the MLflow run, was truncated by a crash or a full disk. The file is repaired when that run "
    "is tracked again; delete it if that will not happen"
)
FIRST_RETRY_S, MAX_RETRY_S = 15.0, 300.0


def now_ms() -> int:
    return int(time.time() * 1000)


def flattened(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names."""
    found: dict[str, Any] = {}
    for name, value in section.items():
        found |= flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def without_user(uri: str) -> str:
    """The address of a server without the user name and password that it may hold."""
    parts = urlsplit(uri)
    user, at, host = parts.netloc.rpartition("@")
    return uri.replace(f"{user}{at}{host}", host, 1) if at else uri


def _no_log(text: str) -> None:
    pass


class Tracking:
    """The tracking store of a lake; `MLFLOW_TRACKING_URI` selects another store than the lake's own."""

    def __init__(self, lake: Lake, profile: Profile, uri: str | None = None) -> None:
        self.lake, self.profile = lake, profile
        configured = uri or os.environ.get("MLFLOW_TRACKING_URI")
        self.local = configured is None
        own = f"sqlite:///{lake.mlflow / 'mlflow.db'}" if lake.local is None else ""  # a database is no object of a store
        self.uri = configured or own
        self.shown_uri = without_user(self.uri)  # what is logged, and stored in the lake that others read
        self.experiment = f"uqlob {profile.name}"
        self.ui = os.environ.get(MLFLOW_UI, "http://127.0.0.1:5000").rstrip("/")
        self.dagster_ui = os.environ.get(DAGSTER_UI, "http://127.0.0.1:3000").rstrip("/")
        self._directory = lake.root / "tracking"
        # Steps on several machines add to the run of a symbol or model. In a store each working copy has an outbox of its own.
        self._shared = lake.local is not None
        self._mark = f".{lake.root.name}" if self._shared else ""
        self._store: Store | None = None
        self._retry_at, self._retry_after = 0.0, FIRST_RETRY_S

    def of(self, lake: Lake) -> "Tracking":
        """The same store for a copy of the lake."""
        return Tracking(lake, self.profile, self.uri or None)

    # ---- identities

    def model(self, key: ModelKey) -> RunIdentity:
        return RunIdentity(str(key), "model", str(key))

    def stage(self, key: ModelKey | str, stage: str, data_version: str) -> RunIdentity:
        """The latest training of a stage on this data; of a joint stage, which all horizons of a symbol share, by symbol."""
        first = self._training(key, stage, data_version, 1)
        path = self._directory / f"{first.slug}.trainings"
        return self._training(key, stage, data_version, int(path.read_text()) if path.is_file() else 1)

    def _training(self, key: ModelKey | str, stage: str, data_version: str, number: int) -> RunIdentity:
        title = f"{key} {stage.replace('_', ' ')}" if isinstance(key, str) else f"{key} {stage}"
        name = title if number == 1 else f"{title} ({number})"
        parent = None if isinstance(key, str) else self.model(key)
        return RunIdentity(name, stage, str(key), data_version, parent, number)

    def stage_in_use(self, key: ModelKey | str, stage: str, data_version: str, version: str) -> RunIdentity:
        """The training that made the model of this version: the latest is another one while a fresh training is unfinished."""
        latest = self.stage(key, stage, data_version)
        trainings = (self._training(key, stage, data_version, number) for number in range(latest.training, 0, -1))
        return next((identity for identity in trainings if self.is_complete(identity, version)), latest)

    def new_training(self, key: ModelKey | str, stage: str, data_version: str) -> RunIdentity:
        """Count a fresh training on the same data: it gets its own run, also when it is resumed."""
        latest = self.stage(key, stage, data_version)
        with atomic_path(self._directory / f"{replace(latest, training=1).slug}.trainings") as temporary:
            temporary.write_text(str(latest.training + 1))
        return self.stage(key, stage, data_version)

    def fits(self, symbol: str) -> RunIdentity:
        return RunIdentity(f"{symbol} bins, scales and thresholds", "fits", symbol)

    def dataset(self) -> RunIdentity:
        return RunIdentity("dataset profile", "dataset", self.profile.name)

    def report(self) -> RunIdentity:
        return RunIdentity("paper report", "report", self.profile.name)

    # ---- runs

    def open(self, identity: RunIdentity, outbox: Path | None = None, log: LogFn = _no_log) -> "TrackedRun":
        path = outbox or self._directory / f"{identity.slug}{self._mark}.jsonl"
        return TrackedRun(self, Outbox(path, identity, shared=self._shared), log)

    @contextmanager
    def start_run(self, identity: RunIdentity, outbox: Path | None = None, log: LogFn = _no_log) -> Iterator["TrackedRun"]:
        """A run with status RUNNING within the block, and FINISHED, FAILED or KILLED after it."""
        run = self.open(identity, outbox, log)
        run.add("start")
        run.deliver()
        try:
            yield run
        except BaseException as error:
            stopped = isinstance(error, TrainingInterrupted) or not isinstance(error, Exception)
            run.end("KILLED" if stopped else "FAILED", str(error) or "cancelled; materialise it again to resume")
            raise
        run.end("FINISHED")

    def deliver(self, outbox: Outbox, log: LogFn, *, now: bool = False) -> bool:
        """Try to upload an outbox; True if it is empty now. Errors of MLflow are logged, never raised."""
        if not now and time.monotonic() < self._retry_at:
            return False
        if not self.uri:
            log(f"{outbox.identity.name}: queued for MLflow; set MLFLOW_TRACKING_URI to the server of the cluster to upload it")
            return False
        try:
            store = self.store()
            for queued in [*self._queued_before(outbox), outbox]:
                queued.deliver(lambda entry: store.apply(outbox.identity, entry))
            self._save_links(outbox.identity, store)
        except Exception as error:  # an unreachable, full or locked store must not stop the work
            log(
                f"{outbox.identity.name}: upload to MLflow at {self.shown_uri} failed: {_first_line(error, self.uri)}. "
                f"Queued in {outbox.path}; it is retried later"
            )
            self._store = None
            self._retry_at = time.monotonic() + self._retry_after
            self._retry_after = min(2 * self._retry_after, MAX_RETRY_S)
            return False
        self._retry_at, self._retry_after = 0.0, FIRST_RETRY_S
        return True

    def flush_pending(self, log: LogFn = _no_log) -> int:
        """Deliver what earlier processes left; returns how many outboxes are still queued."""
        pending, failed = 0, False  # after one failure the others wait for the retry time
        for path in self.pending():
            outbox = open_outbox(path, shared=self._shared)
            if outbox is not None:
                delivered = self.deliver(outbox, log, now=not failed)
                failed = failed or not delivered
            else:
                delivered = not path.exists()  # another process has just delivered it
                if not delivered:
                    log(f"{path}: {TRUNCATED}")
            pending += not delivered
        return pending

    def pending(self) -> list[Path]:
        found = sorted([*self._directory.glob("*.jsonl"), *(self.lake.root / "models").glob(f"*/*/*/*-{OUTBOX}")])
        return sorted(found, key=_modified) if self._shared else found  # of two outboxes of a run the newer one has the last word

    def _queued_before(self, outbox: Outbox) -> Iterator[Outbox]:
        """The outboxes of the same run that other working copies wrote before this one."""
        for path in self.pending() if self._shared else ():
            if path == outbox.path:
                return
            if path.name.startswith(f"{outbox.identity.slug}."):
                earlier = open_outbox(path, shared=True)
                if earlier is not None and earlier.identity == outbox.identity:
                    yield earlier

    def store(self) -> Store:
        if self._store is None:
            self._store = Store(self.uri, self.experiment, self.lake, local=self.local)
        return self._store

    def relative_path(self, path: Path) -> str:
        """A path as an outbox stores it: relative to the lake's root where possible, so that the lake can be moved."""
        return str(path.relative_to(self.lake.root) if path.is_relative_to(self.lake.root) else path)

    # ---- links to runs, saved on disk so that reading them needs no MLflow

    def _save_links(self, identity: RunIdentity, store: Store) -> None:
        for known in (identity, identity.parent):
            if known is None:
                continue
            link = json.dumps({"uri": self.shown_uri, "experiment_id": store.experiment_id, "run_id": store.run_id(known)})
            path = self._directory / f"{known.slug}.json"
            if not path.exists() or path.read_text() != link:
                with atomic_path(path) as temporary:
                    temporary.write_text(link)

    def mark_complete(self, run: "TrackedRun", version: str) -> None:
        """Record that MLflow has everything about a version, so that it is not uploaded again."""
        if not run.outbox.entries():
            with atomic_path(self._directory / f"{run.outbox.identity.slug}.done") as temporary:
                temporary.write_text(json.dumps({"uri": self.shown_uri, "version": version}))

    def is_complete(self, identity: RunIdentity, version: str) -> bool:
        path = self._directory / f"{identity.slug}.done"
        return path.exists() and json.loads(path.read_text()) == {"uri": self.shown_uri, "version": version}

    def url(self, identity: RunIdentity) -> str | None:
        """The run's page in the MLflow UI; None if nothing of it has been uploaded yet."""
        path = self._directory / f"{identity.slug}.json"
        link = json.loads(path.read_text()) if path.exists() else {}
        if link.get("uri") != self.shown_uri:
            return None
        return f"{self.ui}/#/experiments/{link['experiment_id']}/runs/{link['run_id']}?{TRAINING_MODE}"


class TrackedRun:
    """One MLflow run. Each call is on disk when it returns, and in MLflow after the next successful delivery."""

    def __init__(self, tracking: Tracking, outbox: Outbox, log: LogFn) -> None:
        self.tracking, self.outbox, self.log = tracking, outbox, log

    @property
    def url(self) -> str | None:
        return self.tracking.url(self.outbox.identity)

    def add(self, op: str, **entry: Any) -> None:
        self.outbox.add({"op": op, **entry})

    def tags(self, values: dict[str, Any]) -> None:
        self.add("tags", values={name: str(value) for name, value in values.items()})

    def params(self, section: dict[str, Any]) -> None:
        self.add("params", values={name: str(value) for name, value in flattened(section).items()})

    def metrics(self, values: dict[str, float], step: int = 0, time: int | None = None) -> None:
        """MLflow keeps one point for the same name, value, step and time, however often it is logged."""
        self.add("metrics", values=values, step=step, time=time or now_ms())

    def artifact(self, path: Path, to: str = "", **entry: Any) -> None:
        self.add("artifact", path=self.tracking.relative_path(path), to=to or None, **entry)

    def deliver(self, *, now: bool = False) -> bool:
        return self.tracking.deliver(self.outbox, self.log, now=now)

    def end(self, status: str, why: str = "") -> None:
        self.add("end", status=status, why=why, time=now_ms())
        self.deliver(now=True)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # delivered since
        return 0


def _first_line(error: Exception, uri: str) -> str:
    text = str(error).strip().splitlines()
    if not text:
        return type(error).__name__
    user = urlsplit(uri).netloc.rpartition("@")[0]
    line = text[0].replace(f"{user}@", "") if user else text[0]  # MLflow repeats the address with its password
    return f"{type(error).__name__}: {line[:200]}"
