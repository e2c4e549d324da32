"""What can go wrong between Kraken and a recorder, and what it costs."""

from dataclasses import dataclass
from typing import Literal

from uqlob_pipeline.kraken.snapshot import parse_message

FaultKind = Literal["drop", "silence", "corrupt", "garble", "wrong_checksum", "lose", "delay", "expire_tokens"]


@dataclass(frozen=True)
class Fault:
    """At the first message at or after `at` (a place in the stream) of this symbol's book, or of any where none is named."""

    at: int
    kind: FaultKind
    symbol: str | None = None
    seconds: float = 0.5  # of a delay


@dataclass
class Gap:
    """Messages of a symbol's book that no recorder can have verified: places in the stream, the last one excluded."""

    symbol: str
    kind: str
    first: int
    end: int | None = None


def spoilt(line: bytes, kind: FaultKind) -> bytes:
    """What the wire makes of a message; nothing where it loses it."""
    if kind == "lose":
        return b""
    if kind == "garble":
        return line[: len(line) // 2] + b"\x00" + line[len(line) // 2 + 1 :]
    if kind == "corrupt":  # still good JSON: a price digit for what comes, the order for what goes
        line = line.replace(b'"order_id":"O', b'"order_id":"X')
        key = b'"limit_price":' if b'"limit_price":' in line else b'"price":'
        at = line.index(key) + len(key)
        digit = b"1" if line[at : at + 1] != b"1" else b"2"
        return line[:at] + digit + line[at + 1 :]
    checksum = int(parse_message(line)["data"][0]["checksum"])
    return line.replace(b'"checksum":%d' % checksum, b'"checksum":%d' % (checksum ^ 1))
