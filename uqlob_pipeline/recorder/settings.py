"""What a recording is asked to do, and where Kraken is."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from uqlob_pipeline.kraken.snapshot import BookChannel
from uqlob_pipeline.profile import check_symbol

DEPTHS: dict[BookChannel, tuple[int, ...]] = {"level3": (10, 100, 1000), "book": (10, 25, 100, 500, 1000)}


class RecorderError(Exception):
    """The recording cannot go on; the message says why and what to do."""


@dataclass(frozen=True)
class Endpoints:
    """Kraken's addresses. The environment can name others, for a practice server or a proxy."""

    public: str = "wss://ws.kraken.com/v2"
    level3: str = "wss://ws-l3.kraken.com/v2"
    rest: str = "https://api.kraken.com"

    def __post_init__(self) -> None:
        for address in (self.public, self.level3, self.rest):
            parts = urlsplit(address)
            encrypted = parts.scheme in ("wss", "https")
            here = parts.scheme in ("ws", "http") and parts.hostname in ("127.0.0.1", "::1", "localhost")
            if not (encrypted or here):
                raise RecorderError(
                    f"endpoint {address!r}: a token must not travel in the clear. Use wss:// or https://, or loopback"
                )

    @classmethod
    def from_environment(cls) -> "Endpoints":
        names = {"public": "UQLOB_KRAKEN_PUBLIC", "level3": "UQLOB_KRAKEN_LEVEL3", "rest": "UQLOB_KRAKEN_REST"}
        return cls(**{key: os.environ[name] for key, name in names.items() if os.environ.get(name)})


@dataclass(frozen=True)
class RecorderSettings:
    """One recording. Symbols are the lake's names, BTC-USD."""

    symbols: tuple[str, ...]
    depth: int = 1000
    level2: bool = False
    lake: Path = Path("lake")
    endpoints: Endpoints = field(default_factory=Endpoints)
    flush_seconds: float = 3.0  # what a killed process can lose
    sync_seconds: float = 15.0  # what a machine that loses its power can lose
    silence_seconds: float = 10.0  # heartbeats come about once a second
    answer_seconds: float = 30.0  # how long a subscription may stay without its snapshot
    first_retry_seconds: float = 0.5
    longest_retry_seconds: float = 60.0
    steady_seconds: float = 30.0  # a connection that lived this long starts the back-off anew
    symbols_per_connection: int = 200
    subscription_budget: float = 200.0  # Kraken's rate counter, a second
    token_seconds: float = 600.0  # Kraken wants a token used within 900
    compression_level: int = 3

    def __post_init__(self) -> None:
        if not self.symbols:
            raise RecorderError("no symbols to record: name some, such as --symbols BTC/USD,ETH/USD")
        for symbol in self.symbols:
            try:
                check_symbol(symbol)
            except ValueError as error:
                raise RecorderError(f"--symbols: {error}; on the command line BTC/USD or BTC-USD") from error
        if len(set(self.symbols)) != len(self.symbols):
            raise RecorderError("--symbols names a symbol twice")
        if self.depth not in DEPTHS[self.channel]:
            offered = ", ".join(str(depth) for depth in DEPTHS[self.channel])
            raise RecorderError(f"--depth {self.depth}: Kraken's {self.channel} channel offers {offered}")

    @property
    def channel(self) -> BookChannel:
        return "book" if self.level2 else "level3"
