"""What a caller chooses about a simulated day, and what it gets back."""

import datetime as dt
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LEVEL3_DEPTHS = (10, 100, 1000)
BOOK_DEPTHS = (10, 25, 100, 500, 1000)


@dataclass(frozen=True)
class Faults:
    """What goes wrong in a recorded day. Times are drawn from the day's own seed."""

    reconnects: int = 0  # connection lost, messages missed, then status, acks and a fresh snapshot in the same file
    gap_seconds: float = 3.0  # how long each lost connection stays away
    lost_messages: int = 0  # single messages that touch the ten best levels and never arrive, so the checksum fails
    garbage_lines: int = 0  # lines that are no JSON, or cut short, or not UTF-8
    truncated: bool = False  # the book archives end in the middle of a compressed block

    def __post_init__(self) -> None:
        for name in ("reconnects", "lost_messages", "garbage_lines"):
            if getattr(self, name) < 0:
                raise ValueError(f"faults: {name} is {getattr(self, name)}, expected zero or more")
        if self.gap_seconds <= 0:
            raise ValueError(f"faults: gap_seconds is {self.gap_seconds}, expected more than zero")


@dataclass(frozen=True)
class MarketSettings:
    """One simulated day, apart from its symbol and date. The same settings give the same bytes."""

    seed: int = 7
    hours: float = 24.0
    start_hour: float = 0.0
    events_per_second: float | None = None  # None: the symbol's own rate, kept events as in the paper
    signal: float = 1.0  # 0: the null market, whose order flow says nothing about the future direction
    regime: float = 1.0  # 0: no slow impact regime
    depth: int = 1000  # price levels per side of the level3 feed
    level2: int | None = None  # also write the `book` channel, with the given number of levels per side
    faults: Faults = field(default_factory=Faults)
    max_events: int | None = None
    shift: dt.date | None = None  # from this day on the symbol is in the volatility regime of the paper's test days

    def __post_init__(self) -> None:
        if not 0 < self.hours <= 24 or not 0 <= self.start_hour < 24 or self.start_hour + self.hours > 24:
            raise ValueError(
                f"hours {self.hours} from start_hour {self.start_hour} leave the UTC day; both must fit between 0 and 24"
            )
        if self.events_per_second is not None and not 1 <= self.events_per_second <= 20_000:
            raise ValueError(f"events_per_second is {self.events_per_second}, expected 1 to 20000")
        if self.depth not in LEVEL3_DEPTHS:
            raise ValueError(f"depth is {self.depth}, the level3 feed has {LEVEL3_DEPTHS}")
        if self.level2 is not None and self.level2 not in BOOK_DEPTHS:
            raise ValueError(f"level2 is {self.level2}, the book feed has {BOOK_DEPTHS}")
        for name in ("signal", "regime"):
            if not 0 <= getattr(self, name) <= 2:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 0 (off) to 2 (1 is the default)")
        if self.max_events is not None and self.max_events < 1:
            raise ValueError(f"max_events is {self.max_events}, expected at least 1")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"shift": None if self.shift is None else self.shift.isoformat()}


@dataclass(frozen=True)
class DayWritten:
    """What one call of simulate_day left on disk."""

    events: int  # level3 orders added, modified or deleted on the wire, snapshots not counted
    messages: int  # level3 updates
    trades: int
    bytes: int  # compressed, all raw files of the day
    paths: tuple[Path, ...]
    skipped: bool = False  # it existed already, written with the same settings
