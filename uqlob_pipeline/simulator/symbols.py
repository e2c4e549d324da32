"""The seven symbols of the paper: their wire precision, event rate, price level and how far they move.

Tick size and event rate are the paper's dataset table. The paper's y_ref (155 ticks of BTC in 5 s, 628 of TAO) comes
from books whose quotes jump many ticks at a time. Here the book is dense, so that spreads stay at one to a few ticks,
and `displacement` (the standard deviation over 5 s in quiet times, in book cells) is a handful to a dozen; the
symbols keep the paper's order. `ticks_per_cell` spreads the quotes of the two symbols with the finest ticks (DOGE, TAO), where
one tick is a thousandth of a basis point or so and no real book is that dense.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class SymbolSpec:
    """What the simulated exchange knows about one pair."""

    symbol: str
    price_precision: int  # one tick is 10^-price_precision
    qty_precision: int
    events_per_second: float
    opening_price: float
    daily_volatility: float
    displacement: float
    ticks_per_cell: int
    median_quantity: float
    minimum_quantity: float

    @property
    def wire_symbol(self) -> str:
        return self.symbol.replace("-", "/")


_SPECS = (
    SymbolSpec("BTC-USD", 1, 8, 156.0, 91_000.0, 0.022, 7.0, 1, 0.06, 0.00005),
    SymbolSpec("ETH-USD", 2, 8, 151.0, 3_100.0, 0.030, 6.5, 1, 1.5, 0.001),
    SymbolSpec("DOGE-USD", 7, 8, 134.0, 0.1425, 0.038, 8.0, 5, 9_000.0, 30.0),
    SymbolSpec("SOL-USD", 2, 8, 80.0, 138.0, 0.034, 4.0, 1, 25.0, 0.02),
    SymbolSpec("TAO-USD", 4, 8, 80.0, 285.0, 0.048, 6.0, 10, 4.0, 0.01),
    SymbolSpec("SUI-USD", 4, 5, 64.0, 1.80, 0.044, 4.5, 1, 900.0, 1.5),
    SymbolSpec("LTC-USD", 2, 8, 39.0, 82.0, 0.032, 3.0, 1, 12.0, 0.04),
)

SYMBOLS: dict[str, SymbolSpec] = {spec.symbol: spec for spec in _SPECS}


def symbol_spec(symbol: str) -> SymbolSpec:
    """The spec of a symbol, checked before its name is used in any path."""
    try:
        return SYMBOLS[symbol]
    except KeyError:
        raise ValueError(f"the simulated market has no symbol {symbol!r}; choose from {', '.join(SYMBOLS)}") from None
