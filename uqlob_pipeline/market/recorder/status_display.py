"""The status of the recording: a table on a terminal, else a line, or an object in a JSON log."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from uqlob_pipeline.market.recorder.event_log import EventLog
from uqlob_pipeline.market.recorder.recording import Recording


@dataclass(frozen=True)
class SymbolStatus:
    symbol: str
    live: bool
    messages: int
    messages_per_second: float
    lag_ms: float
    longest_lag_ms: float  # since the last status
    gaps: int
    checksum_failures: int
    missed_trades: int
    written_bytes: int


class StatusBoard:
    """Turns counters into rates between two calls of `read`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._read_at = recording.started
        self._messages: dict[str, int] = {}

    def read(self) -> list[SymbolStatus]:
        now = time.monotonic()
        elapsed = max(now - self._read_at, 1e-9)
        self._read_at = now
        rows = []
        for book, trade in zip(self.recording.books, self.recording.trades, strict=True):
            of_book, of_trade = book.statistics, trade.statistics
            messages = of_book.messages + of_trade.messages
            rows.append(
                SymbolStatus(
                    symbol=of_book.symbol,
                    live=book.live,
                    messages=messages,
                    messages_per_second=(messages - self._messages.get(of_book.symbol, 0)) / elapsed,
                    lag_ms=of_book.lag_ns / 1e6,
                    longest_lag_ms=of_book.longest_lag_ns / 1e6,
                    gaps=of_book.all_gaps + of_trade.all_gaps,
                    checksum_failures=of_book.checksum_failures,
                    missed_trades=of_trade.missed_trades,
                    written_bytes=of_book.written_bytes + of_trade.written_bytes,
                )
            )
            of_book.longest_lag_ns = 0
            self._messages[of_book.symbol] = messages
        return rows


def status_line(rows: list[SymbolStatus], seconds: float) -> str:
    """One line for all symbols: totals, then the size of each."""
    each = "  ".join(f"{row.symbol}{'' if row.live else ' (waiting)'} {_size(row.written_bytes)}" for row in rows)
    return (
        f"{seconds:,.0f} s  {sum(row.messages_per_second for row in rows):,.0f} messages/s  "
        f"lag {max(row.lag_ms for row in rows):,.0f} ms (longest {max(row.longest_lag_ms for row in rows):,.0f})  "
        f"gaps {sum(row.gaps for row in rows)}  checksum failures {sum(row.checksum_failures for row in rows)}  "
        f"missed trades {sum(row.missed_trades for row in rows)}  {each}"
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def status_table(rows: list[SymbolStatus], seconds: float) -> Any:
    # Imported here so that other commands start fast.
    from rich.table import Table

    table = Table(title=f"recording for {seconds:,.0f} s (Ctrl-C closes the files and stops)", title_justify="left")
    for heading in ("symbol", "book", "messages", "messages/s", "lag ms", "longest ms", "gaps", "bad checksums", "on disk"):
        table.add_column(heading, justify="left" if heading in ("symbol", "book") else "right")
    for row in rows:
        table.add_row(
            row.symbol,
            "[green]verified" if row.live else "[yellow]waiting",
            f"{row.messages:,}",
            f"{row.messages_per_second:,.0f}",
            f"{row.lag_ms:,.0f}",
            f"{row.longest_lag_ms:,.0f}",
            f"{row.gaps}",
            f"{row.checksum_failures}",
            _size(row.written_bytes),
        )
    return table


@contextmanager
def status_display(event_log: EventLog) -> Iterator[tuple[Callable[[list[SymbolStatus], float], None], float]]:
    """A function that shows a status, and the default seconds between two calls."""
    if event_log.style == "json":

        def as_json(rows: list[SymbolStatus], seconds: float) -> None:
            symbols = {row.symbol: {name: _short(value) for name, value in vars(row).items() if name != "symbol"} for row in rows}
            event_log.log("info", "status", seconds=round(seconds), symbols=symbols)

        yield as_json, 10.0
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), auto_refresh=False) as live:
            yield lambda rows, seconds: live.update(status_table(rows, seconds), refresh=True), 1.0
    else:
        yield lambda rows, seconds: event_log.log("info", status_line(rows, seconds)), 60.0


def _short(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


async def show_status(recording: Recording, show: Callable[[list[SymbolStatus], float], None], every: float) -> None:
    board = StatusBoard(recording)
    while True:
        await asyncio.sleep(every)
        show(board.read(), time.monotonic() - recording.started)
