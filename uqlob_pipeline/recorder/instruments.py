"""The instrument channel: the precisions that checksums need, and the instrument dump of the lake."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from uqlob_pipeline.kraken.utc_days import start_time
from uqlob_pipeline.lake import Lake
from uqlob_pipeline.recorder.dump_file import append_line
from uqlob_pipeline.recorder.feeds import BadMessage, Feed, spliced
from uqlob_pipeline.recorder.statistics import FeedStatistics

FACTS = ("price_increment", "price_precision", "qty_increment", "qty_precision", "status")


class InstrumentFeed(Feed):
    """Writes an instrument message only where it says something new of a recorded symbol: one holds hundreds of pairs."""

    channel = "instrument"
    symbol = None

    def __init__(
        self, lake: Lake, symbols: Iterable[str], precisions: dict[str, tuple[int, int]], announce: Callable[[], None]
    ) -> None:
        self.directory = lake.root / "raw" / "instrument"
        self.symbols = set(symbols)
        self.precisions, self.announce = precisions, announce
        self.statistics = FeedStatistics("instrument", "all")
        self.path: Path | None = None
        self.live = False
        self._known: dict[str, dict[str, Any]] = {}

    def parameters(self) -> dict[str, Any]:
        return {"channel": "instrument", "snapshot": True}

    def acknowledge(self, line: bytes, received_at: int) -> None:
        self.live = True

    def lose(self, reason: str) -> None:
        self.live = False

    def receive(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        statistics = self.statistics
        statistics.received_bytes += len(line)
        try:
            said = {
                pair["symbol"]: {fact: pair[fact] for fact in FACTS if fact in pair}
                for pair in message["data"].get("pairs", [])
                if pair["symbol"] in self.symbols
            }
            for symbol, facts in said.items():
                if "price_precision" in facts and "qty_precision" in facts:
                    self.precisions[symbol] = (int(facts["price_precision"]), int(facts["qty_precision"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            statistics.malformed += 1
            raise BadMessage("malformed", f"{type(error).__name__}: {error}") from error
        statistics.last_received = received_at
        changed = {symbol: facts for symbol, facts in said.items() if self._known.get(symbol) != facts}
        self.announce()
        if changed:
            self._known.update(changed)
            self._write(spliced(line, received_at), received_at)

    def _write(self, line: bytes, received_at: int) -> None:
        if self.path is None:
            self.path = self.directory / f"{start_time(received_at)}.jsonl"
            self.statistics.files += 1
        append_line(self.path, line)
        self.statistics.messages += 1
        self.statistics.written_bytes += len(line)
