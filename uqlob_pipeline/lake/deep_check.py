"""Verifies the bytes of a whole lake: tables, records, weights, checkpoints, window stores, dumps and MLflow's database.

Files are hashed in threads, which hashing does not hold up. A damaged file is named with what would make it again. The files of
a lake in a store are fetched in parts, each of which is checked and deleted again.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from uqlob_models.content_hash import CONTENT, DamagedContent, require_described, require_weights
from uqlob_models.window_store import damage
from uqlob_pipeline.lake.dump_hashes import dump_damage
from uqlob_pipeline.lake.file_hashes import SUFFIX, file_hash, recorded_hashes
from uqlob_pipeline.lake.layout import DUMP_SUFFIXES, Lake
from uqlob_pipeline.lake.shared_lake import SharedLake, empty_copy

UNKNOWN = None  # a file without a recorded hash
Check = Callable[[], str | None]  # what is wrong with a file; empty where nothing is
ProgressFn = Callable[[int, int, int], None]  # files checked, files in all, bytes checked


@dataclass(frozen=True)
class Damage:
    path: str  # below the lake
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}. {self.remedy}"


@dataclass
class DeepCheck:
    """What a check of every file found."""

    files: int = 0
    size: int = 0
    damaged: list[Damage] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # without a recorded hash


def check_lake(lake: Lake, progress: ProgressFn | None = None) -> DeepCheck:
    """Check every file of the lake whose bytes matter."""
    found = DeepCheck()
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="deep-check") as threads:
        if isinstance(lake, SharedLake):
            with empty_copy(lake) as (copy, files):
                for left in files.parts():
                    _check_files(copy, dict(_checks(copy)), found, threads, progress, left)
        else:
            _check_files(lake, dict(_checks(lake)), found, threads, progress)
        _check_files(lake, dict(_window_checks(lake)), found, threads, progress)
    found.damaged.sort(key=lambda one: one.path)
    found.unknown.sort()
    return found


def _check_files(
    lake: Lake,
    checks: dict[Path, Check],
    found: DeepCheck,
    threads: ThreadPoolExecutor,
    progress: ProgressFn | None,
    left: int = 0,
) -> None:
    """Run checks and add what they find; `left` files come after these."""
    in_all = found.files + len(checks) + left
    waiting = {threads.submit(_run, path, check): path for path, check in checks.items()}
    for done in as_completed(waiting):
        path, (why, size) = waiting[done], done.result()
        name = _name(lake, path).as_posix()
        found.files, found.size = found.files + 1, found.size + size
        if why is UNKNOWN:
            found.unknown.append(name)
        elif why:
            found.damaged.append(Damage(name, why.replace(str(lake.root), lake.name), remedy(lake, path)))
        if progress is not None:
            progress(found.files, in_all, found.size)


def _name(lake: Lake, path: Path) -> Path:
    """A file's path below the lake. Window stores of a lake in a store are kept elsewhere."""
    windows = lake.window_stores
    return "windows" / path.relative_to(windows) if path.is_relative_to(windows) else path.relative_to(lake.root)


def _run(path: Path, check: Check) -> tuple[str | None, int]:
    files = [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]
    try:
        return check(), sum(file.stat().st_size for file in files)
    except FileNotFoundError:  # replaced or removed by another process while this one looked
        return "", 0
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return f"it cannot be read ({error})", 0


def _checks(lake: Lake) -> Iterator[tuple[Path, Check]]:
    root = lake.root
    for record in root.rglob(f".*{SUFFIX}"):
        path = record.with_name(record.name[1 : -len(SUFFIX)])
        if path.is_file():
            yield path, _hash_check(path)
    for path in root.glob("*/**/*.parquet"):
        if path.relative_to(root).parts[0] not in ("mlflow", "latent") and not path.name.startswith("."):
            yield path, _hash_check(path)
    for path in (*root.glob("models/**/weights.safetensors"), *root.glob("mlflow/**/*.safetensors")):
        if not path.parent.name.startswith("step-"):  # those of a checkpoint are described in its state
            yield path, _weights_check(path)
    for state in root.glob("models/**/step-*/state.json"):
        yield state.parent, _state_check(state)
    for path in (root / "raw").rglob("*"):
        if path.name.endswith(DUMP_SUFFIXES) and not path.name.startswith("."):
            yield path, lambda dump=path: dump_damage(lake, dump)  # type: ignore[misc]
    if (lake.mlflow / "mlflow.db").is_file():
        yield lake.mlflow / "mlflow.db", lambda: _database_damage(lake.mlflow / "mlflow.db")


def _window_checks(lake: Lake) -> Iterator[tuple[Path, Check]]:
    for store in lake.window_stores.glob("*/*/*/store.json"):
        yield store.parent, lambda directory=store.parent: damage(directory)  # type: ignore[misc]


def _hash_check(path: Path) -> Check:
    def check() -> str | None:
        known = recorded_hashes(path)
        if not known:
            return UNKNOWN
        return "" if file_hash(path) in known else "hash mismatch"

    return check


def _weights_check(path: Path) -> Check:
    def check() -> str | None:
        try:
            return "" if require_weights(path) else UNKNOWN
        except DamagedContent as error:
            return str(error)

    return check


def _state_check(state: Path) -> Check:
    def check() -> str | None:
        about = json.loads(state.read_text())
        if CONTENT not in about:
            return UNKNOWN
        try:
            require_described(about, state.parent)
        except DamagedContent as error:
            return str(error)
        return ""

    return check


def _database_damage(path: Path) -> str:
    """SQLite checks the structure of its pages; it keeps no checksum of their content."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    try:
        found = [str(row[0]) for row in connection.execute("pragma integrity_check(3)")]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    finally:
        connection.close()
    return "" if found == ["ok"] else f"SQLite finds it corrupt ({'; '.join(found)})"


def remedy(lake: Lake, path: Path) -> str:
    """What makes a damaged file again."""
    parts = _name(lake, path).parts
    values = dict(part.removesuffix(".parquet").partition("=")[::2] for part in parts if "=" in part)
    symbol = f" --symbols {values['symbol']}" if "symbol" in values else ""
    day = f" --from {values['date']} --to {values['date']}" if "date" in values else ""
    horizon = f" --horizons {values['horizon']}" if "horizon" in values else ""
    if parts[0] == "raw":
        return "Restore it from a copy, or delete it and record or import it again; then run uqlob materialize"
    if parts[0] == "windows":
        return f"The next training builds it again from event_features of {values.get('symbol')} {values.get('date')}"
    if parts[0] == "mlflow":
        return "Restore mlflow/ from a copy. Without one, move it away: runs upload again when their stages are trained again"
    if parts[0] == "report":
        return "Run uqlob report"
    if parts[0] == "models":
        if any(part.startswith("step-") for part in parts):
            return "Delete it: the training resumes from the checkpoint before it, or starts again"
        home = "/".join(parts[:4])
        if parts[1].startswith("joint_"):  # the models that came of it are files of their own
            return f"Delete {home}: no forecast reads it, and the next joint training of {values['symbol']} starts again"
        return f"Delete {home} and run uqlob materialize --select {parts[1]}{symbol}{horizon}, which trains it again"
    return f"Delete it and run uqlob materialize --select {parts[0]}{symbol}{day}{horizon}"
