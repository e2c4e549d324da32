"""The profile: every setting, in one TOML file that pydantic validates before anything runs.

`UQLOB_PROFILE` is the name of a built-in profile (`demo`, `paper`, `free-days`, `drill`) or the path of a TOML file.
The section `training` is `uqlob_models.config.TrainingConfig`, `economics` is in `economics.py` beside this file.
"""

import datetime as dt
import hashlib
import json
import os
import re
import tomllib
from decimal import Decimal
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    model_validator,
)

from uqlob_models.config import TrainingConfig
from uqlob_pipeline.config.economics import EconomicsSettings
from uqlob_pipeline.config.section import Section
from uqlob_pipeline.config.splits import DAYS_TAGS, SplitName, Splits
from uqlob_pipeline.config.study import StudySettings
from uqlob_pipeline.config.wrong_keys import explain

PROFILES = Path(__file__).parent / "profiles"
SYMBOL_PATTERN = re.compile(r"[A-Z0-9]{1,12}-[A-Z]{3,6}")


class ProfileError(Exception):
    """The profile cannot be used; the message names the key and what was expected."""


@lru_cache(maxsize=1 << 10)  # each asset-day of a lake is checked several times
def check_symbol(symbol: str) -> str:
    """Symbols become paths: only names such as BTC-USD pass."""
    if not SYMBOL_PATTERN.fullmatch(symbol):
        raise ValueError(f"'{symbol}' is not a symbol such as BTC-USD (capital letters and digits, one dash)")
    return symbol


Symbol = Annotated[str, AfterValidator(check_symbol)]


class Instrument(Section):
    """A symbol as Kraken's instrument channel describes it, and the days on which it was recorded."""

    tick: Decimal = Field(gt=0)
    price_precision: int = Field(ge=0, le=12)  # decimals in the checksum: those of the text on the wire, 9 for some pairs of v1
    qty_precision: int = Field(ge=0, le=8)
    first_day: dt.date | None = None
    absent_days: tuple[dt.date, ...] = ()

    @model_validator(mode="after")
    def _tick_fits_precision(self) -> "Instrument":
        if (self.tick * 10**self.price_precision) % 1 != 0:
            raise ValueError(f"tick {self.tick} has more decimals than price_precision = {self.price_precision}")
        return self

    @property
    def units_per_tick(self) -> int:
        """Price units (10^-price_precision) in one tick."""
        return int(self.tick * 10**self.price_precision)


class BookSettings(Section):
    verify_every: int = Field(100, ge=1, description="verify the checksum of every Nth message and the last of each session")
    max_level: int = Field(10, ge=1, le=100, description="events deeper than this on their side are discarded")
    execution_tolerance_ms: float = Field(5.0, ge=0, description="maximum time from a trade print to its book event")
    republished_age_ms: float = Field(
        10.0,
        gt=0,
        description="an add beyond the visible book whose order is older than this is a republished order, not an event",
    )
    max_quarantine_rate: float = Field(0.001, ge=0, le=1, description="share of bad lines above which the asset-day fails")
    max_checksum_failures: int = Field(20, ge=0, description="failed sessions above which the asset-day's check fails")
    max_lost_message_share: float = Field(
        0.1, ge=0, le=1, description="share of a day's messages without a verified book above which the day is refused"
    )
    max_lost_time_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of a day's recorded time without a verified book above which the day is refused",
    )
    gap_warning_s: float = Field(60.0, gt=0, description="a longer gap between events is reported")


class DuckDBSettings(Section):
    memory_limit: str = Field("2GB", pattern=r"^\d+(\.\d+)?(MB|GB|MiB|GiB)$")
    threads: int = Field(2, ge=1)


class FeatureSettings(Section):
    window: int = Field(512, ge=2, le=65536)
    flow: Literal["dnfi", "ofi"] = Field(
        "dnfi", description="dnfi: the paper's definition; ofi: Cont's order-flow imbalance, which follows the best price"
    )


class LabelSettings(Section):
    horizons_s: tuple[int, ...] = (5, 10, 15, 30)
    alpha: float = Field(0.25, gt=0)
    k: int = Field(10, ge=1)
    latency_us: int = Field(500, ge=0)
    y_ref: Literal["median", "paper"] = Field(
        "median", description="median: of |y| over y != 0 in training; paper: the printed value"
    )
    y_ref_paper: dict[Symbol, dict[int, float]] = Field(default_factory=dict)
    max_null_share: float = Field(0.5, ge=0, le=1)
    regime_shift_pp: float = Field(15.0, gt=0, description="a class share this far from the training share raises a warning")


class ContextSettings(Section):
    max_age_s: float | None = Field(
        None,
        gt=0,
        description="a context window ends at most so long before its target, so that no context reaches across missing days",
    )


class EvaluationSettings(Section):
    horizons_s: tuple[int, ...] = Field((5, 10, 15), description="horizons that models are trained and evaluated for")
    bootstrap_replicates: int = Field(500, ge=0, description="0 gives no confidence intervals")
    bootstrap_block_s: int = Field(
        600, ge=1, description="seconds of calendar time per block, so that neighbouring windows stay together"
    )


class SimulationSettings(Section):
    """The simulated market; missing in a profile of recorded data."""

    seed: int = 7
    hours: float = Field(2.0, gt=0, le=24)
    events_per_second: float | None = Field(None, gt=0)
    signal: float = Field(1.0, ge=0, description="strength of the predictable part; 0 is the null market")
    regime: float = Field(1.0, ge=0)
    shift: dt.date | None = Field(None, description="from this day on, the volatility regime of the paper's test days")


class Level3Csv(Section):
    """What the columns and words of a table of level-3 orders mean, for `uqlob import`."""

    symbol: str = "symbol"
    side: str = "side"
    event: str = "action"
    order_id: str = "order_id"
    price: str = "price"
    quantity: str = "size"
    time: str = Field("ts_event", description="the order's own time, as Kraken writes it: RFC 3339 in UTC")
    message: str = Field("ts_recv", description="consecutive rows with one value are one message; empty: each row is one")
    bid: str = "b"
    ask: str = "a"
    add: str = "add"
    modify: str = "modify"
    delete: str = "delete"
    snapshot: str = "snapshot"

    def names(self) -> list[str]:
        """The names of the columns."""
        columns = (self.symbol, self.side, self.event, self.order_id, self.price, self.quantity, self.time, self.message)
        return [name for name in columns if name]


class Profile(Section):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    description: str
    instruments: dict[Symbol, Instrument] = Field(min_length=1)
    splits: Splits
    simulation: SimulationSettings | None = None
    book: BookSettings = BookSettings()
    duckdb: DuckDBSettings = DuckDBSettings()
    features: FeatureSettings = FeatureSettings()
    labels: LabelSettings = LabelSettings()
    context: ContextSettings = ContextSettings()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationSettings = EvaluationSettings()
    level3_csv: Level3Csv = Level3Csv()
    economics: EconomicsSettings = EconomicsSettings()
    study: StudySettings = StudySettings()

    @model_validator(mode="after")
    def _sections_agree(self) -> "Profile":
        unlabelled = set(self.evaluation.horizons_s) - set(self.labels.horizons_s)
        if unlabelled:
            raise ValueError(f"evaluation.horizons_s: {sorted(unlabelled)} have no label: add them to labels.horizons_s")
        slowest, shortest = max(self.economics.latencies_ms), min(self.evaluation.horizons_s)
        if slowest > shortest * 500:
            raise ValueError(
                f"economics.latencies_ms: an order that arrives after {slowest:g} ms misses more than half of the horizon "
                f"of {shortest} s"
            )
        if unknown := set(self.study.symbols) - set(self.instruments):
            raise ValueError(f"study.symbols: {sorted(unknown)} are not in [instruments]")
        if other := set(self.study.horizons_s) - set(self.evaluation.horizons_s):
            raise ValueError(f"study.horizons_s: {sorted(other)} are not in evaluation.horizons_s")
        if self.training.encoder.window_length != self.features.window:
            raise ValueError(
                f"training.encoder.window_length is {self.training.encoder.window_length}, "
                f"but features.window is {self.features.window}: they must be equal"
            )
        if self.labels.y_ref == "paper":
            for symbol in self.instruments:
                missing = set(self.labels.horizons_s) - set(self.labels.y_ref_paper.get(symbol, {}))
                if missing:
                    raise ValueError(
                        f"labels.y_ref_paper.{symbol}: no value for {sorted(missing)} s, which y_ref = 'paper' needs"
                    )
        return self

    @property
    def symbols(self) -> list[str]:
        return list(self.instruments)

    @property
    def first_day(self) -> dt.date:
        return self.splits.train.first

    @cached_property
    def simulated(self) -> bool:
        return self.simulation is not None

    def instrument(self, symbol: str) -> Instrument:
        if symbol not in self.instruments:
            known = ", ".join(self.instruments)
            raise ProfileError(f"symbol {symbol} is not in profile '{self.name}' (it has {known}): {self._advice(symbol)}")
        return self.instruments[symbol]

    def _advice(self, symbol: str) -> str:
        """What to do about a symbol that is not in the profile."""
        similar = symbol.upper().replace("/", "-")  # Kraken writes BTC/USD
        if similar in self.instruments:
            return f"did you mean {similar}?"
        return f"add [instruments.{symbol}] to it" if SYMBOL_PATTERN.fullmatch(symbol) else "a symbol is written such as BTC-USD"

    def days(self, symbol: str, *splits: SplitName) -> list[dt.date]:
        """The days of a symbol in the given splits, in order, without those on which it was not recorded."""
        instrument = self.instrument(symbol)
        every = [day for name in splits for day in getattr(self.splits, name).days()]
        first = instrument.first_day or self.first_day
        return [day for day in every if day >= first and day not in instrument.absent_days]

    @property
    def fingerprint(self) -> str:
        """A hash of every setting: two profiles with the same one give the same tables."""
        return self.settings_version(*type(self).model_fields)

    def settings_version(self, *keys: str) -> str:
        """A short hash of the given sections or dotted keys (`labels.alpha`), for the provenance of a table.

        A key without a value is left out: a new optional key leaves existing tables current.
        """
        settings = self.model_dump(mode="json")
        chosen = {key: reduce(lambda section, part: section[part], key.split("."), settings) for key in keys}
        chosen = {key: value for key, value in chosen.items() if value is not None}
        return hashlib.blake2b(json.dumps(chosen, sort_keys=True).encode(), digest_size=8).hexdigest()


def load_profile(name: str | None = None) -> Profile:
    """The profile `name`, else that of UQLOB_PROFILE, else `demo`."""
    return _load(profile_path(name))


def profile_path(name: str | None = None) -> Path:
    """The file of a profile: a built-in name, or a path that ends in .toml."""
    chosen = name or os.environ.get("UQLOB_PROFILE") or "demo"
    path = Path(chosen) if chosen.endswith(".toml") else PROFILES / f"{chosen}.toml"
    return path.absolute()


@lru_cache(maxsize=8)
def _load(path: Path) -> Profile:
    return read_profile(path)


def read_profile(path: Path) -> Profile:
    """The profile as the file is now."""
    if not path.is_file():
        built_in = ", ".join(sorted(p.stem for p in PROFILES.glob("*.toml")))
        raise ProfileError(f"no profile at {path}: UQLOB_PROFILE takes a built-in name ({built_in}) or the path of a .toml file")
    try:
        return Profile.model_validate(tomllib.loads(path.read_text()))
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise ProfileError(explain(path, error, Profile, DAYS_TAGS)) from error
