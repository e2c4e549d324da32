"""Windows of events as arrays on disk: one memory-mapped store per asset-day, built once from its feature Parquet file.

A store holds raw features; the model standardises them. It is written a few hundred windows at a time, so that memory does not
grow with the day, and gets its final name when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from uqlob_models.config import CONTINUOUS_FEATURES, fingerprint
from uqlob_models.content_hash import DamagedContent, described, require_described

FORMAT = 2
WINDOWS_AT_A_TIME = 256
StoreDtype = Literal["float16", "float32"]


class WindowStoreError(ValueError):
    """The feature file does not hold what a window store needs."""


@dataclass(frozen=True)
class WindowStore:
    """The windows of one asset-day, memory-mapped."""

    name: str
    version: str
    tokens: NDArray[np.uint16]  # (n, T)
    continuous: NDArray[Any]  # (n, 7, T), float16 or float32
    t_end: NDArray[np.int64]  # (n,) time of each window's last event

    def __len__(self) -> int:
        return len(self.t_end)


def file_version(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def build_window_store(
    features: Path,
    store_dir: Path,
    dtype: StoreDtype = "float16",
    *,
    window_length: int = 512,
    data_version: str | None = None,
) -> WindowStore:
    """The store of one asset-day, built from `features` unless `store_dir` has it.

    `data_version` identifies the content of the feature file; without it the file is hashed. A store of another version, type
    or length is replaced, and so is a damaged one. A killed build leaves the previous store, or none.
    """
    version = data_version or file_version(features)
    key = fingerprint({"format": FORMAT, "version": version, "dtype": dtype, "window_length": window_length})
    final = store_dir / key
    if final.exists() and damage(final):
        shutil.rmtree(final, ignore_errors=True)
    if not final.exists():
        store_dir.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=store_dir))
        try:
            _write(features, partial, np.dtype(dtype), window_length, version)
            try:
                os.rename(partial, final)
            except OSError:
                if not final.exists():  # else another process has built the same store
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        for stale in store_dir.iterdir():
            if stale.is_dir() and stale.name != key and not stale.name.startswith(".partial-"):
                shutil.rmtree(stale, ignore_errors=True)
    with suppress(OSError):  # a directory of another user
        os.utime(final)  # when it was used last
    return open_window_store(final, name=features.stem)


def damage(directory: Path) -> str:
    """What is wrong with the bytes of a store; empty where they are those that were written."""
    try:
        require_described(json.loads((directory / "store.json").read_text()), directory)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return str(error) if isinstance(error, DamagedContent) else f"{directory} cannot be read: {error}"
    return ""


def open_window_store(directory: Path, name: str | None = None) -> WindowStore:
    about = json.loads((directory / "store.json").read_text())
    n, length, features = about["windows"], about["window_length"], about["features"]

    def mapped(file: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        if n == 0:  # an empty file cannot be mapped
            return np.empty(shape, dtype=dtype)
        return np.memmap(directory / file, dtype=dtype, mode="r", shape=shape)

    return WindowStore(
        name=name or directory.parent.name,
        version=directory.name,
        tokens=mapped("tokens", "uint16", (n, length)),
        continuous=mapped("continuous", about["dtype"], (n, features, length)),
        t_end=np.array(mapped("t_end", "int64", (n,))),
    )


def _write(features: Path, directory: Path, dtype: np.dtype[Any], length: int, version: str) -> None:
    windows = 0
    with (
        (directory / "tokens").open("wb") as tokens,
        (directory / "continuous").open("wb") as continuous,
        (directory / "t_end").open("wb") as t_end,
    ):
        for columns in _whole_windows(features, length):
            count = len(columns["token"]) // length
            tokens.write(columns["token"].astype("<u2").tobytes())
            values = np.stack([columns[name].reshape(count, length) for name in CONTINUOUS_FEATURES], axis=1)
            limit = np.finfo(dtype).max  # float16 must not overflow to infinity
            continuous.write(np.clip(values, -limit, limit).astype(dtype).tobytes())
            t_end.write(columns["ts"][length - 1 :: length].astype("<i8").tobytes())
            windows += count
        for file in (tokens, continuous, t_end):
            file.flush()
            os.fsync(file.fileno())
    about = {
        "format": FORMAT,
        "windows": windows,
        "window_length": length,
        "features": len(CONTINUOUS_FEATURES),
        "dtype": dtype.name,
        "data_version": version,
    }
    (directory / "store.json").write_text(json.dumps(described(about, directory, "tokens", "continuous", "t_end"), indent=1))


def _whole_windows(path: Path, length: int) -> Iterator[dict[str, NDArray[Any]]]:
    """The columns of the feature file, a few hundred whole windows at a time: windows 0, 1, 2, ... in order, or an error."""
    names = ("ts", "window", "position", "token", *CONTINUOUS_FEATURES)
    expected = 0
    carried: dict[str, NDArray[Any]] | None = None  # the first events of a window that the next batch completes
    with pq.ParquetFile(path, pre_buffer=False) as file:
        missing = [name for name in names if name not in file.schema_arrow.names]
        if missing:
            raise WindowStoreError(f"{path} has no column {', '.join(missing)}: write the features of this day again")
        for batch in file.iter_batches(batch_size=length * WINDOWS_AT_A_TIME, columns=list(names)):
            kept = batch.filter(batch.column(batch.schema.get_field_index("window")).is_valid())
            columns = {name: kept.column(kept.schema.get_field_index(name)).to_numpy(zero_copy_only=False) for name in names}
            if carried is not None:
                columns = {name: np.concatenate([carried[name], columns[name]]) for name in names}
            rows = len(columns["token"]) // length * length
            whole = {name: column[:rows] for name, column in columns.items()}
            carried = {name: column[rows:].copy() for name, column in columns.items()}
            windows = np.arange(expected, expected + rows // length)
            in_order = np.array_equal(whole["window"], np.repeat(windows, length))
            if not in_order or not np.array_equal(whole["position"], np.tile(np.arange(length), len(windows))):
                raise WindowStoreError(
                    f"{path}: windows {expected} to {expected + len(windows) - 1} are not {length} events each, in order; "
                    "if the window length has changed, write the features of this day again"
                )
            expected += len(windows)
            if rows:
                yield whole
    if carried is not None and len(carried["token"]):
        raise WindowStoreError(f"{path}: window {expected} has {len(carried['token'])} events instead of {length}")
