"""The instrument channel: precisions for the checksums, and the lake's instrument dump."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from uqlob_pipeline.lake.layout import Lake
from uqlob_pipeline.market.kraken.utc_days import start_time
from uqlob_pipeline.market.kraken.wire import SCALE
from uqlob_pipeline.market.recorder.dump_file import append_line
from uqlob_pipeline.market.recorder.feeds import BadMessage, Feed, spliced
from uqlob_pipeline.market.recorder.statistics import FeedStatistics

FIELDS = ("price_increment", "price_precision", "qty_increment", "qty_precision", "status")


def _precision(text: str) -> int:
    precision = int(text)
    if not 0 <= precision <= SCALE:  # an exponent of that size would stop the recorder
        raise ValueError(f"a precision of {text[:20]}, expected 0 to {SCALE}")
    return precision


class InstrumentFeed(Feed):
    """Writes an instrument message only if it changes a recorded symbol, because one message holds hundreds of pairs."""

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
        self._known: dict[str, dict[str, Any]] = {}

    def parameters(self) -> dict[str, Any]:
        return {"channel": "instrument", "snapshot": True}

    def receive(self, line: bytes, message: dict[str, Any], received_at: int) -> None:
        statistics = self.statistics
        statistics.received_bytes += len(line)
        try:
            received = {
                pair["symbol"]: {name: pair[name] for name in FIELDS if name in pair}
                for pair in message["data"].get("pairs", [])
                if pair["symbol"] in self.symbols
            }
            for symbol, values in received.items():
                if "price_precision" in values and "qty_precision" in values:
                    self.precisions[symbol] = (_precision(values["price_precision"]), _precision(values["qty_precision"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            statistics.malformed += 1
            raise BadMessage("malformed", f"{type(error).__name__}: {error}") from error
        statistics.last_received = received_at
        changed = {symbol: values for symbol, values in received.items() if self._known.get(symbol) != values}
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
