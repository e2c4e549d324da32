"""The seven symbols of the paper, one data file each in `symbols/`.

`[exchange]` and `[chosen]` are set by hand. `[fitted]` is written by `uqlob simulate calibrate`, which fits it to the paper's
dataset and threshold tables. `[shifted]` replaces values of `[fitted]` and `[chosen]` from the day of `--shift` on.
"""

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

SYMBOL_DIRECTORY = Path(__file__).parent / "symbols"
_NAMES = ("BTC-USD", "ETH-USD", "DOGE-USD", "SOL-USD", "TAO-USD", "SUI-USD", "LTC-USD")


@dataclass(frozen=True)
class SymbolSpec:
    """What the simulated exchange knows about one pair, and how its market moves."""

    symbol: str
    # exchange
    price_precision: int  # one tick is 10^-price_precision
    qty_precision: int
    minimum_quantity: float
    # chosen
    events_per_second: float  # the paper's
    opening_price: float
    median_quantity: float
    ticks_per_cell: int  # market makers quote on a grid of the given number of ticks
    narrow_spread: int  # cells
    extra_spread: float  # mean cells above the narrowest
    repricing_step: int  # half cells
    repricing_rate: float  # per second while not frozen
    repricing_tail: float
    pressure_gain: float
    pressure_relief: float  # 1: the mid-price is a random walk; less: it trends over a few seconds
    regime_log2: float
    burst: float  # excitation of the order flow by a repricing
    frozen_activity: float  # factor of the arrival rate while frozen
    y_ref_aim: float  # what the fit aims at, in units of the paper's y_ref
    # fitted
    action_rate: float  # actions per second that give the paper's event rate
    repricing_scale: float  # relative to the price
    volatility_sd: float
    frozen_share: float
    frozen_seconds: float
    # shifted
    shifted: tuple[tuple[str, float], ...] = ()

    @property
    def wire_symbol(self) -> str:
        return self.symbol.replace("-", "/")

    @property
    def tick(self) -> float:
        return float(10.0**-self.price_precision)

    def after_shift(self) -> "SymbolSpec":
        return replace(self, **dict(self.shifted))  # type: ignore[arg-type]


FITTED = ("action_rate", "repricing_scale", "volatility_sd", "frozen_share", "frozen_seconds")


def read_spec(path: Path) -> SymbolSpec:
    tables: dict[str, Any] = tomllib.loads(path.read_text())
    values = {name: value for table in ("exchange", "chosen", "fitted") for name, value in tables[table].items()}
    kinds = {field.name: field.type for field in fields(SymbolSpec)}
    values = {name: float(value) if kinds.get(name) is float else value for name, value in values.items()}
    unknown = (set(values) | set(tables.get("shifted", {}))) - set(kinds)
    if unknown:
        raise ValueError(f"{path}: unknown values {sorted(unknown)}")
    shifted = tuple((name, float(value)) for name, value in tables.get("shifted", {}).items())
    return SymbolSpec(symbol=path.stem, **values, shifted=shifted)


SYMBOLS: dict[str, SymbolSpec] = {name: read_spec(SYMBOL_DIRECTORY / f"{name}.toml") for name in _NAMES}


def symbol_spec(symbol: str) -> SymbolSpec:
    """The spec of a symbol, checked before its name is used in any path."""
    try:
        return SYMBOLS[symbol]
    except KeyError:
        raise ValueError(f"the simulated market has no symbol {symbol!r}; choose from {', '.join(SYMBOLS)}") from None
