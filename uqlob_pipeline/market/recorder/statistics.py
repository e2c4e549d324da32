"""Counters of feeds and connections, for the status line, the metrics and the tests."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class FeedStatistics:
    """One channel of one symbol since the recorder started."""

    channel: str
    symbol: str
    messages: int = 0  # written, snapshots included
    received_bytes: int = 0
    written_bytes: int = 0  # compressed, on disk
    snapshots: int = 0
    verified: int = 0
    checksum_failures: int = 0
    malformed: int = 0
    dropped: int = 0  # received without a verified book, so not written
    missed_trades: int = 0  # trade ids that were never received
    files: int = 0
    gaps: Counter[str] = field(default_factory=Counter)  # by reason
    lag_ns: int = 0  # received_at minus Kraken's own time, of the last message
    longest_lag_ns: int = 0  # since the last status
    last_received: int = 0

    @property
    def all_gaps(self) -> int:
        return sum(self.gaps.values())

    def count_received(self, received_at: int, message_time: int) -> None:
        self.last_received = received_at
        self.lag_ns = received_at - message_time
        if self.lag_ns > self.longest_lag_ns:
            self.longest_lag_ns = self.lag_ns


@dataclass(slots=True)
class ConnectionStatistics:
    """One connection since the recorder started."""

    name: str
    connects: int = 0
    failures: int = 0
    connected: bool = False
    rate_limited: int = 0
    token_failures: int = 0
    lost_by: Counter[str] = field(default_factory=Counter)
