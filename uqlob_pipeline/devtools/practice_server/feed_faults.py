"""Faults between Kraken and a recorder, and the gaps that they cause."""

import re
from dataclasses import dataclass
from typing import Literal

from uqlob_pipeline.market.kraken.wire import parse_message

_FIRST_DIGIT = re.compile(rb'("(?:limit_)?price":)(\d)')
FaultKind = Literal["drop", "silence", "corrupt", "garble", "wrong_checksum", "lose", "delay", "expire_tokens"]


@dataclass(frozen=True)
class Fault:
    """Happens at the first message of this symbol's book, or of any book, at or after position `at` of the stream."""

    at: int
    kind: FaultKind
    symbol: str | None = None
    seconds: float = 0.5  # of a delay


@dataclass
class Gap:
    """Messages of a symbol's book that no recorder can have verified: positions first to end, end excluded."""

    symbol: str
    kind: str
    first: int
    end: int | None = None


def apply_fault(line: bytes, kind: FaultKind) -> bytes:
    """The message as the recorder receives it; empty if it is lost."""
    if kind == "lose":
        return b""
    if kind == "garble":
        return line[: len(line) // 2] + b"\x00" + line[len(line) // 2 + 1 :]
    if kind == "corrupt":  # still valid JSON, with other prices and order ids
        line = line.replace(b'"order_id":"O', b'"order_id":"X')
        return _FIRST_DIGIT.sub(lambda found: found[1] + (b"2" if found[2] == b"1" else b"1"), line)
    checksum = int(parse_message(line)["data"][0]["checksum"])
    return line.replace(b'"checksum":%d' % checksum, b'"checksum":%d' % (checksum ^ 1))
