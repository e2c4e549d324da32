"""What a connection and its feeds agree on: the interface, bad messages, and messages that jump to a later day."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from uqlob_pipeline.market.recorder.statistics import FeedStatistics


class BadMessage(Exception):
    """A message that is not written to the dump; `reason` is that of the gap. `line` is set where an earlier line is meant."""

    def __init__(self, reason: str, detail: str, line: bytes = b"") -> None:
        super().__init__(detail)
        self.reason, self.line = reason, line


@dataclass(frozen=True)
class Jump:
    """A message whose time is on a later day than its stream and the machine's clock, held until the next one confirms it."""

    time: int
    start: int  # of the file that it would begin
    line: bytes
    texts: tuple[bytes, ...]  # what it would write to that file

    def refuted_by(self, time: int, stream: int) -> bool:
        """Whether the next message is nearer to the stream than to the jump."""
        return time - stream < self.time - time

    def bad_message(self) -> BadMessage:
        return BadMessage("malformed", f"its time is on a later day, and the next message is not: {self.time}", self.line)


class Feed(ABC):
    """The interface between a connection and its subscriptions."""

    channel: str
    symbol: str | None  # Kraken's name, BTC/USD; None for the instruments
    statistics: FeedStatistics
    live: bool = False

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Parameters of the subscription, except the token."""

    @abstractmethod
    def receive(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        """Process a message of this feed; raises BadMessage if it opens a gap."""

    def acknowledge(self, line: bytes, received_at: int) -> None:
        """Kraken has accepted the subscription."""
        self.live = True

    def lose(self, reason: str) -> None:
        """The next message does not continue the previous ones."""
        self.live = False


def spliced(line: bytes, received_at: int) -> bytes:
    """The message as received, with `received_at` as its last key and a newline."""
    body = line.strip()
    if b"\n" in body:  # between tokens only: JSON strings contain no bare newline
        body = body.replace(b"\r", b" ").replace(b"\n", b" ")
    return b'%b,"received_at":%d}\n' % (body[:-1], received_at)
