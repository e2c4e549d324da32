"""Hashes of raw dumps. A dump is read once for its hash; until it changes, the next to ask is told what was found then.

At the paper's size the dumps of a lake are hundreds of gigabytes, and whether a day is current is asked often.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from uqlob_pipeline.lake import Lake, atomic_path, file_hash

SETTLED_NS = 2_000_000_000  # a file changed a moment ago can change again without its time showing it


def dump_hash(lake: Lake, dump: Path) -> str:
    """The hash of a dump's bytes, remembered below the lake with the file's size, times and inode."""
    kept = lake.root / "hashes" / dump.relative_to(lake.root).with_name(f"{dump.name}.json")
    before = _state(dump)
    with suppress(OSError, ValueError, KeyError):
        said = json.loads(kept.read_text())
        if said["state"] == before:
            return str(said["hash"])
    found = file_hash(dump)
    changed_at = max(before["modified_ns"], before["changed_ns"])
    if _state(dump) == before and time.time_ns() - changed_at > SETTLED_NS:
        with suppress(OSError), atomic_path(kept) as temporary:  # what cannot be remembered is read again
            temporary.write_text(json.dumps({"state": before, "hash": found}))
    return found


def _state(dump: Path) -> dict[str, int]:
    said = dump.stat()
    return {"size": said.st_size, "modified_ns": said.st_mtime_ns, "changed_ns": said.st_ctime_ns, "inode": said.st_ino}
