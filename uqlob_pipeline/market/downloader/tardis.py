"""Tardis.dev's files of Kraken: which ones there are for symbols and days, and the download of many of them."""

import datetime as dt
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from uqlob_pipeline.config.profile import check_symbol
from uqlob_pipeline.market.downloader.file_client import DownloadFailed, FileClient, FileMissing, KeyNeeded

KEY_VARIABLE, ADDRESS_VARIABLE = "TARDIS_API_KEY", "UQLOB_TARDIS"
ADDRESS = "https://datasets.tardis.dev"
DATA_TYPES = ("incremental_book_L2", "trades")
OTHER_NAMES = {"BTC": "XBT", "DOGE": "XDG"}  # in use by Kraken before WebSocket v2
FileProgress = Callable[[Path, int, int | None], None]  # bytes so far, and of the whole file where the server says it


class Cancelled(Exception):
    """The download was interrupted."""


@dataclass(frozen=True)
class TardisFile:
    """One symbol's file of a day."""

    data_type: str
    symbol: str  # the lake's name
    day: dt.date

    def __post_init__(self) -> None:
        check_symbol(self.symbol)

    def __str__(self) -> str:
        return f"{self.data_type} {self.symbol} {self.day}"

    @property
    def name(self) -> str:
        return f"kraken_{self.data_type}_{self.day}_{self.symbol}.csv.gz"

    def paths(self) -> list[str]:
        """The file's addresses on the server: the asset's spelling there depends on the date."""
        base, _, quote = self.symbol.partition("-")
        names = [f"{OTHER_NAMES[base]}-{quote}", self.symbol] if base in OTHER_NAMES else [self.symbol]
        return [f"/v1/kraken/{self.data_type}/{self.day:%Y/%m/%d}/{name}.csv.gz" for name in names]


@dataclass(frozen=True)
class Outcome:
    file: TardisFile
    path: Path
    error: str = ""
    already_there: bool = False


def days_between(first: str, last: str, only_first_of_month: bool) -> list[dt.date]:
    """The days from a month or day to a month or day, both included; ValueError if a text is neither."""
    start, end = _edge(first, False), _edge(last, True)
    if end < start:
        raise ValueError(f"{last} lies before {first}")
    days = [start + dt.timedelta(days=i) for i in range((end - start).days + 1)]
    return [day for day in days if day.day == 1 or not only_first_of_month]


def _edge(text: str, last: bool) -> dt.date:
    try:
        if len(text) != len("2026-01"):
            return dt.date.fromisoformat(text)
        month = dt.date.fromisoformat(f"{text}-01")
    except ValueError:
        raise ValueError(f"{text!r} is neither a month such as 2026-01 nor a day such as 2026-01-31") from None
    return (month + dt.timedelta(days=32)).replace(day=1) - dt.timedelta(days=1) if last else month


def download(
    files: list[TardisFile], directory: Path, parallel: int, progress: FileProgress, cancelled: threading.Event | None = None
) -> Generator[Outcome, None, None]:
    """Download files, `parallel` at a time, and yield each one's outcome. The key comes from the environment."""
    stop = cancelled or threading.Event()

    def wait(seconds: float) -> None:
        if stop.wait(seconds):
            raise Cancelled

    client = FileClient(os.environ.get(ADDRESS_VARIABLE) or ADDRESS, os.environ.get(KEY_VARIABLE) or None, wait)

    def one(file: TardisFile) -> Outcome:
        target = directory / file.name
        if target.exists():
            return Outcome(file, target, already_there=True)

        def report(have: int, total: int | None) -> None:
            if stop.is_set():
                raise Cancelled
            progress(target, have, total)

        return Outcome(file, target, _fetch(client, file, target, report))

    with ThreadPoolExecutor(parallel, "download") as threads:
        waiting = [threads.submit(one, file) for file in files]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            stop.set()
            threads.shutdown(cancel_futures=True)
            client.close()


def _fetch(client: FileClient, file: TardisFile, target: Path, report: Callable[[int, int | None], None]) -> str:
    """Fetch a file under each of its spellings in turn; returns why it failed, or nothing."""
    missing: list[str] = []
    for path in file.paths():
        try:
            client.fetch(path, target, report)
            return ""
        except FileMissing as error:
            missing.append(str(error))
        except KeyNeeded as error:
            held = f"{KEY_VARIABLE} is not valid for it" if os.environ.get(KEY_VARIABLE) else f"{KEY_VARIABLE} is not set"
            return f"{error}: {held}. The first day of each month needs no key"
        except DownloadFailed as error:
            return str(error)
        except OSError as error:
            return f"{target}: {error.strerror or error}. Free some space or repair the cause, and run the same command again"
    return f"{'; '.join(missing)}: the symbol or the day is not available there"
