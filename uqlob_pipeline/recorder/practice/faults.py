"""What can go wrong between Kraken and a recorder, and what it costs."""

import re
from dataclasses import dataclass
from typing import Literal

from uqlob_pipeline.kraken.snapshot import parse_message

_FIRST_DIGIT = re.compile(rb'("(?:limit_)?price":)(\d)')
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
    if kind == "corrupt":  # still good JSON: other prices for what comes, other orders for what goes
        line = line.replace(b'"order_id":"O', b'"order_id":"X')
        return _FIRST_DIGIT.sub(lambda found: found[1] + (b"2" if found[2] == b"1" else b"1"), line)
    checksum = int(parse_message(line)["data"][0]["checksum"])
    return line.replace(b'"checksum":%d' % checksum, b'"checksum":%d' % (checksum ^ 1))
