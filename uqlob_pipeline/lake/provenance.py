"""How each file of the lake was made, written in the file's own metadata, so that staleness follows from the files alone."""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_pipeline.lake.file_hashes import damaged, verified

PROVENANCE_KEY = b"uqlob"
MAGIC = b"PAR1"
# Bytes from the end of a Parquet file. Metadata stands behind the row groups, so that most provenance is within them however
# many row groups there are; that of a fit to hundreds of days is not.
TAIL = 1 << 13
_ENCODER = json.JSONEncoder(sort_keys=True)


@dataclass(frozen=True)
class Provenance:
    """What a file was made from. Its hash is the file's data version."""

    table: str
    code_version: str
    settings_version: str
    inputs: dict[str, str] = field(default_factory=dict)

    @cached_property
    def data_version(self) -> str:
        return _hash(asdict(self))

    def metadata(self) -> dict[bytes, bytes]:
        return {PROVENANCE_KEY: json.dumps({**asdict(self), "data_version": self.data_version}, sort_keys=True).encode()}

    @classmethod
    def from_json(cls, text: str | bytes) -> "Provenance":
        record: dict[str, Any] = json.loads(text)
        record = record.get("provenance", record)
        return cls(**{name: value for name, value in record.items() if name != "data_version"})


def _hash(fields: dict[str, Any]) -> str:
    return hashlib.blake2b(_ENCODER.encode(fields).encode(), digest_size=12).hexdigest()


def read_provenance(path: Path) -> Provenance | None:
    """How a file of the lake was made; None where it is missing or carries no provenance.

    A Parquet file carries it in its footer, a trained stage and the report in a JSON record.
    """
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not S_ISREG(stat.st_mode):
        return None
    try:
        if path.suffix == ".json":
            return Provenance.from_json(verified(path).read_text())
        return _in_footer(path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, f"it cannot be read ({type(error).__name__}: {error})") from error


@lru_cache(maxsize=1 << 17)
def _in_footer(path: Path, _state: tuple[int, ...]) -> Provenance | None:
    """Staleness asks for each file several times: once for itself, and once for each table that reads it."""
    if found := _found_in_footer(path, _state[0]):
        return found
    metadata = (pq.read_metadata(path).metadata or {}).get(PROVENANCE_KEY)
    return Provenance.from_json(metadata) if metadata else None


def _found_in_footer(path: Path, size: int) -> Provenance | None:
    with open(path, "rb", buffering=0) as file:
        tail = os.pread(file.fileno(), TAIL, max(size - TAIL, 0))
        needed = footer_size(tail)
        if not 0 < needed <= size:
            return None
        found = provenance_in_footer(tail[-needed:])
        if found is None and needed > len(tail):
            found = provenance_in_footer(os.pread(file.fileno(), needed, size - needed))
    return found


def footer_size(tail: bytes) -> int:
    """How many bytes at the end of a Parquet file are its footer; 0 where it is no such file."""
    return int.from_bytes(tail[-8:-4], "little") + 8 if tail[-4:] == MAGIC else 0


def provenance_in_footer(footer: bytes) -> Provenance | None:
    """The provenance of a footer, or of as much of its end as there is; None where it is not found: pyarrow says why."""
    with suppress(TypeError):
        if found := fields_in_footer(footer):
            return with_version(*found)
    return None


def fields_in_footer(footer: bytes) -> tuple[dict[str, Any], str] | None:
    """The fields of a provenance and its data version, by their place after its key.

    Decoding the rest of the footer takes five times as long. The data version shows that these are the provenance's bytes.
    """
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        text = value_in_footer(footer, PROVENANCE_KEY)
        record = json.loads(text)
        version = record.pop("data_version")
        # What `metadata` wrote without the data version is the text that `_hash` hashed.
        hashed = text.replace(f'"data_version": "{version}", '.encode(), b"", 1)
        if hashlib.blake2b(hashed, digest_size=12).hexdigest() == version:
            return record, version
    return None


def with_version(fields: dict[str, Any], version: str) -> Provenance:
    """A provenance whose data version is known."""
    provenance = Provenance(**fields)
    vars(provenance)["data_version"] = version  # as the property would keep it
    return provenance


def value_in_footer(footer: bytes, key: bytes) -> bytes:
    """The value of a key of the footer, in Thrift's compact encoding: both are strings after their length. Empty if not found."""
    _, _, rest = footer.partition(b"\x18" + bytes([len(key)]) + key + b"\x18")
    length = shift = 0
    for position, byte in enumerate(rest[:5]):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return rest[position + 1 : position + 1 + length]
    return b""
