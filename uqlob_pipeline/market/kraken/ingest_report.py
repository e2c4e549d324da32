"""The report of a replayed asset-day, and the errors of the replay."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from uqlob_pipeline.lake.file_hashes import verified

REPORT_KEY = b"uqlob_ingest"


class IngestError(Exception):
    """An asset-day cannot be replayed; the message names the file, the partition and what to do."""


class DumpMissing(IngestError):
    """The asset-day has no dump."""


@dataclass
class IngestReport:
    """Counts and times of one replayed asset-day, for its Dagster metadata and the Parquet file."""

    channel: str
    rows: int = 0
    sessions: int = 0
    reconnects: int = 0  # sessions that began while the one before them was still verified
    lines: int = 0
    messages: int = 0
    checksums_verified: int = 0
    checksums_failed: int = 0
    unverifiable: int = 0  # updates whose checksum is missing, null, negative, not a number or larger than 32 bits
    duplicated: int = 0  # messages that repeat the one before them: left out
    quarantined: int = 0
    truncated_files: list[str] = field(default_factory=list)
    dropped_before_snapshot: int = 0
    dropped_after_failure: int = 0
    taken_back: int = 0
    discarded_by_depth: int = 0
    republished: int = 0
    unknown_orders: int = 0
    foreign_messages: int = 0
    other_day: int = 0  # events of messages with a timestamp of another day: left out
    other_day_messages: int = 0
    overlapping: int = 0  # events earlier than the end of a previous session: left out
    overlaps: list[str] = field(default_factory=list)  # the files that overlap
    one_sided: int = 0
    crossed: int = 0
    backwards: int = 0
    executions: int = 0
    prints: int = 0  # of the trade channel
    missing_trades: int = 0  # ids between the first and the last that no print has
    gaps: int = 0
    longest_silence_s: float = 0.0
    recorded_seconds: float = 0.0  # from the day's first update to its last
    lost_seconds: float = 0.0  # of them without a verified book
    first_ts: int | None = None
    last_ts: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def updates(self) -> int:
        return self.messages - self.sessions  # each snapshot begins a session

    @property
    def without_checksums(self) -> bool:
        """Whether the source has no checksums at all, so that nothing of the day can be verified."""
        return 0 < self.unverifiable == self.updates

    @property
    def seconds(self) -> float:
        return (self.last_ts - self.first_ts) / 1e9 if self.first_ts is not None and self.last_ts is not None else 0.0

    @property
    def executions_per_print(self) -> float:
        """Near 1 where the prints are this market's; 0 where they explain no price of the book."""
        return self.executions / self.prints if self.prints else 0.0

    @property
    def lost_messages(self) -> int:
        """Messages that no verified book could take."""
        return self.dropped_before_snapshot + self.dropped_after_failure

    @property
    def events_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def read_report(path: Path) -> IngestReport:
    """The report in the metadata of a book_events file."""
    return IngestReport(**json.loads(pq.read_metadata(verified(path)).metadata[REPORT_KEY]))
