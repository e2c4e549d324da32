"""Hashes of raw dumps, cached by size, modification time and inode.

At the paper's size the dumps of a lake are hundreds of gigabytes, and staleness is computed often.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.file_hashes import file_hash
from uqlob_pipeline.lake.layout import AssetDay, Lake, LocalFiles
from uqlob_pipeline.lake.store import StoreError

SETTLED_NS = 2_000_000_000  # a file that changed a moment ago can change again within the same modification time


def hashes_of_dumps(lake: Lake, day: AssetDay) -> dict[str, str]:
    """The hash of every dump that the replay of an asset-day reads: those of the better book channel, and the trades."""
    _, files = lake.book_dumps(day)
    return hashes_of_files(lake, [*files, *lake.dumps("trade", day)])


def hashes_of_files(lake: Lake, dumps: list[Path]) -> dict[str, str]:
    return {str(path.relative_to(lake.root)): dump_hash(lake, path) for path in dumps}


def dump_hash(lake: Lake, dump: Path) -> str:
    """The hash of a dump's bytes."""
    if lake.local is not None:
        return lake.local.dump_hash(dump)
    cached, state = _cache_path(lake, dump), _state(dump)
    known = _cached_hash(cached, state)
    if known:
        return known
    digest = file_hash(dump)
    changed_at = max(state["modified_ns"], state["changed_ns"])
    if _state(dump) == state and time.time_ns() - changed_at > SETTLED_NS:
        with suppress(OSError), atomic_path(cached) as temporary:  # a hash that cannot be cached is computed again
            temporary.write_text(json.dumps({"state": state, "hash": digest}))
    return digest


def dump_damage(lake: Lake, dump: Path) -> str | None:
    """What is wrong with a dump: its bytes changed although its size and times did not.

    None where that is not known: the dump was not hashed before, and its hash is cached from now on, or it is being written to.
    """
    if lake.local is not None:
        return _damage_in_store(lake.local, dump)
    state = _state(dump)
    known = _cached_hash(_cache_path(lake, dump), state)
    if known:
        if file_hash(dump) == known:
            return ""
        return "its bytes changed on disk since it was read first" if _state(dump) == state else None
    dump_hash(lake, dump)
    return None


def _damage_in_store(local: LocalFiles, dump: Path) -> str | None:
    """The same for a dump that was fetched from a store."""
    known = local.recorded_hash(dump)
    if known:
        return "" if file_hash(dump) == known else "its bytes changed in the store since it was published"
    with suppress(StoreError):  # whoever may only read the store cannot record it
        local.dump_hash(dump)
    return None


def _cache_path(lake: Lake, dump: Path) -> Path:
    return Path(f"{lake.root}/hashes/{dump.relative_to(lake.root)}.json")


def _cached_hash(cached: Path, state: dict[str, int]) -> str | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        entry = json.loads(cached.read_text())
        if entry["state"] == state:
            return str(entry["hash"])
    return None


def _state(dump: Path) -> dict[str, int]:
    stat = dump.stat()
    return {"size": stat.st_size, "modified_ns": stat.st_mtime_ns, "changed_ns": stat.st_ctime_ns, "inode": stat.st_ino}
