"""What the numbers of imported dumps say about their instruments, where the profile lacks one or has other precisions."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path

from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.market.kraken.dump_reader import read_lines
from uqlob_pipeline.market.kraken.wire import NOT_A_MESSAGE, SCALE, SIDES, parse_message, scaled_integer

LOOKED_AT = 500  # lines


@dataclass(frozen=True)
class SeenNumbers:
    """The numbers of a dump's first messages."""

    tick: Decimal  # the greatest step that all prices are multiples of
    price_decimals: int
    qty_decimals: int
    checksums: bool

    def section(self, symbol: str) -> str:
        """The profile's section for such an instrument."""
        return (
            f'[instruments.{symbol}]\ntick = "{self.tick.normalize():f}"\nprice_precision = {self.price_decimals}\n'
            f"qty_precision = {self.qty_decimals}"
        )


def seen_numbers(file: Path) -> SeenNumbers | None:
    """The numbers of the first messages of a book dump; None if it has none."""
    step = price_decimals = qty_decimals = 0
    checksums = False
    for _, line in islice(read_lines(file), LOOKED_AT):
        try:
            (data,) = parse_message(line)["data"]
            checksums |= data.get("checksum") is not None
            for entry in (entry for side in SIDES for entry in data.get(side) or ()):
                price, decimals = scaled_integer(entry.get("price") or entry["limit_price"])
                _, lots_decimals = scaled_integer(entry.get("qty") or entry["order_qty"])
                step = math.gcd(step, price)
                price_decimals, qty_decimals = max(price_decimals, decimals), max(qty_decimals, lots_decimals)
        except NOT_A_MESSAGE:
            continue
    return SeenNumbers(Decimal(step).scaleb(-SCALE), price_decimals, qty_decimals, checksums) if step else None


def instrument_hints(profile: Profile, files: Iterable[Path]) -> list[str]:
    """A hint for each symbol of these book dumps that the profile lacks or describes with other precisions."""
    hints: dict[str, str] = {}
    for file in sorted(files):
        symbol = file.parent.parent.name
        known = profile.instruments.get(symbol)
        if symbol in hints or (seen := seen_numbers(file)) is None:
            continue
        if known is None:
            suggested = f"The first numbers of {symbol} suggest this section of a profile; compare it with Kraken's:"
            hints[symbol] = f"{suggested}\n{seen.section(symbol)}"
        elif seen.checksums and (seen.price_decimals, seen.qty_decimals) != (known.price_precision, known.qty_precision):
            hints[symbol] = (
                f"{symbol} has prices with {seen.price_decimals} decimals and quantities with {seen.qty_decimals}; profile "
                f"'{profile.name}' has price_precision = {known.price_precision} and qty_precision = {known.qty_precision}. "
                f"Checksums cover every decimal and would fail: use a profile and a lake of their own for these dumps, with\n"
                f"{seen.section(symbol)}"
            )
    return list(hints.values())
