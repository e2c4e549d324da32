"""The quarantine of messages that were received but not written to a dump."""

import json
from pathlib import Path

from uqlob_pipeline.market.kraken.utc_days import DAY_NS, date_of
from uqlob_pipeline.market.recorder.dump_file import append_line

MAX_LINES_PER_DAY = 1000
MAX_LINE_BYTES = 1 << 16


class RejectedLines:
    """Appends to quarantine/recorder/DATE.jsonl; lines past the daily maximum are only counted."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "quarantine" / "recorder"
        self.count = 0
        self._day, self._of_day = -1, 0

    def keep(self, reason: str, source: str, line: bytes, received_at: int) -> None:
        self.count += 1
        if received_at // DAY_NS != self._day:
            self._day, self._of_day = received_at // DAY_NS, 0
        self._of_day += 1
        if self._of_day > MAX_LINES_PER_DAY:
            return
        entry = {
            "received_at": received_at,
            "reason": reason,
            "source": source,
            "line": line[:MAX_LINE_BYTES].decode(errors="backslashreplace"),
        }
        # For the owner alone: what could not be read may hold account data.
        append_line(self.directory / f"{date_of(self._day)}.jsonl", json.dumps(entry).encode() + b"\n", 0o600)
