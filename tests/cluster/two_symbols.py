"""The tiny market with two symbols that the tests of a cluster work on."""

from pathlib import Path

from tests.end_to_end import tiny_market

SYMBOLS = ("BTC-USD", "ETH-USD")
MORE_SYMBOLS = """
[instruments.ETH-USD]
tick = "0.01"
price_precision = 2
qty_precision = 8
"""


def write_profile(directory: Path, **changes: int) -> Path:
    """The tiny market with two symbols."""
    path = tiny_market.write_profile(directory, **changes)
    path.write_text(path.read_text().replace("[splits]", f"{MORE_SYMBOLS}\n[splits]"))
    return path


def asset_days(symbols: tuple[str, ...] = SYMBOLS, days: int = tiny_market.DAYS) -> list[str]:
    """Partitions as Dagster names them."""
    dates = [str(tiny_market.day(number).date) for number in range(days)]
    return [f"{date}|{symbol}" for symbol in symbols for date in dates]
