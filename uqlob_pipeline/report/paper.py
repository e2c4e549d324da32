"""The paper's printed numbers, read from `paper.toml`."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def paper() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "paper.toml").read_text())


def printed(table: str, head: str, horizon_s: int, metric: str, gate: int | None = None) -> float | None:
    """The number that the paper prints for a pooled score, or None. `gate` is a percentile or a tier."""
    values = paper()[table].get(head, {}).get(str(horizon_s), {}).get(metric)
    if gate is None or values is None:
        return values
    gates = paper()[table].get("gates") or paper()[table]["tiers"]
    return values[gates.index(gate)] if gate in gates else None


def intensity(table: str, value: float) -> float:
    """Percent of full colour as the paper shades its cells: green where positive, red where negative."""
    colour = paper()[table]["colour"]
    return max(-85.0, min(85.0, (value - colour["pivot"]) * colour["slope"]))
