"""Settings of a recording, and Kraken's endpoints."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from uqlob_pipeline.config.profile import check_symbol
from uqlob_pipeline.market.kraken.wire import DEPTHS, BookChannel


class RecorderError(Exception):
    """The recording cannot continue; the message says why and what to do."""


@dataclass(frozen=True)
class Endpoints:
    """Kraken's addresses. Environment variables replace them, for a practice server or a proxy."""

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
                    f"endpoint {address!r}: a token must not be sent unencrypted. Use wss:// or https://, or loopback"
                )

    @classmethod
    def from_environment(cls) -> "Endpoints":
        names = {"public": "UQLOB_KRAKEN_PUBLIC", "level3": "UQLOB_KRAKEN_LEVEL3", "rest": "UQLOB_KRAKEN_REST"}
        return cls(**{key: os.environ[name] for key, name in names.items() if os.environ.get(name)})


@dataclass(frozen=True)
class RecorderSettings:
    """Settings of one recording. Symbols are the lake's names, BTC-USD."""

    symbols: tuple[str, ...]
    depth: int = 1000
    level2: bool = False
    lake: Path = Path("lake")
    endpoints: Endpoints = field(default_factory=Endpoints)
    flush_seconds: float = 3.0  # what a killed process loses at most
    sync_seconds: float = 15.0  # what a power failure loses at most
    silence_seconds: float = 10.0  # heartbeats come about once a second
    answer_seconds: float = 30.0  # how long a subscription may wait for its snapshot
    first_retry_seconds: float = 0.5
    longest_retry_seconds: float = 60.0
    steady_seconds: float = 30.0  # a connection that lasted this long resets the back-off
    symbols_per_connection: int = 200
    subscription_budget: float = 200.0  # Kraken's rate counter, per second
    token_seconds: float = 600.0  # Kraken accepts a token for 900
    token_request_seconds: float = 15.0  # from the first packet to the last
    compression_level: int = 3
    publish: str | None = None  # the URL of a store for closed files
    publish_seconds: float = 60.0  # between two attempts

    def __post_init__(self) -> None:
        if not self.symbols:
            raise RecorderError("no symbols to record: name at least one, such as --symbols BTC/USD,ETH/USD")
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
