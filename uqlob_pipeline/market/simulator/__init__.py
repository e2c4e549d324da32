"""The built-in market: a limit-order book with hidden pressure that writes dumps exactly as Kraken would.

Nothing outside this package knows that a dump was simulated, and nothing in a dump shows the hidden state.
"""

from typing import TYPE_CHECKING, Any

from uqlob_pipeline.market.simulator.market_settings import DayWritten, Faults, MarketSettings
from uqlob_pipeline.market.simulator.symbol_specs import SYMBOLS

if TYPE_CHECKING:
    from uqlob_pipeline.market.simulator.day import MarketFrozenError, day_messages
    from uqlob_pipeline.market.simulator.writing import simulate_day

__all__ = ["SYMBOLS", "DayWritten", "Faults", "MarketFrozenError", "MarketSettings", "day_messages", "simulate_day"]


def __getattr__(name: str) -> Any:
    # numba and pyarrow take a second to import: only those who run a market pay for it.
    if name == "simulate_day":
        from uqlob_pipeline.market.simulator.writing import simulate_day

        return simulate_day
    if name in ("day_messages", "MarketFrozenError"):
        from uqlob_pipeline.market.simulator import day

        return getattr(day, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
