"""Text summary of `economic_evaluation`: at which tier acting pays, the headline figures, and controls that gain."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uqlob_pipeline.config.economics import EconomicsSettings
from uqlob_pipeline.economics.names import MUST_TRADE, TAKER, TEST

PAYS = "acting pays from"
MINIMUM_FILLS = 20  # of the calibration half, to choose by their result


def own_rows(table: pa.Table, settings: EconomicsSettings) -> pa.Table:
    """The rows of the profile's own latency and traded size on the test split."""
    wanted = pc.and_(pc.equal(table["latency_ms"], settings.latency_ms), pc.equal(table["size"], settings.sizes[0]))
    return table.filter(pc.and_(wanted, pc.equal(table["split"], TEST)))


def chosen_by_tier(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """What the calibration half chose at each tier, from the dearest to the cheapest."""
    chosen = [row for row in rows if row["chosen"] and row["tier"] is not None]
    return sorted(chosen, key=lambda row: (float(str(row["taker_bps"])), float(str(row["maker_bps"]))), reverse=True)


def headline(own: pa.Table) -> dict[str, float]:
    """Break-even fees and savings by head, gate and policy, for MLflow."""
    found: dict[str, float] = {}
    for row in own.to_pylist():
        name = f"economics/{row['head']}/{row['policy']}_gate{row['gate']}"
        if row["policy"] == MUST_TRADE:
            values = {"saving_bps": row["gross_bps"]}
        else:
            values = {"break_even_bps": row["break_even_bps"], "fill_rate": row["fill_rate"]}
        found |= {f"{name}/{metric}": value for metric, value in values.items() if value is not None}
    return found


def verdict(own: list[dict[str, object]]) -> str:
    """At which tiers, if any, acting pays: by the lower bound of what the calibration half chose."""
    chosen = chosen_by_tier(own)
    if not chosen:
        return f"too few fills on the calibration half (fewer than {MINIMUM_FILLS}) to choose how to act"
    pays = [row["net_lower"] is not None and float(str(row["net_lower"])) > 0 for row in chosen]
    if any(pays):
        first = pays.index(True)
        without = [str(chosen[place]["tier"]) for place in range(first, len(chosen)) if not pays[place]]
        but = f", except at {', '.join(without)}" if without else ""
        return f"{PAYS} the tier {chosen[first]['tier']} on{but}: {_described(chosen[first])}"
    best = max(chosen, key=lambda row: -np.inf if row["net_bps"] is None else float(str(row["net_bps"])))
    if best["net_bps"] is None:
        return "nothing that the calibration half chose was filled on the test days"
    return f"acting pays at no tier; the best, {best['tier']}: {_described(best)}"


def _described(row: dict[str, object]) -> str:
    bounds = "" if row["net_lower"] is None else f" ({row['net_lower']:.2f} to {row['net_upper']:.2f})"
    how = f"{row['head']}, gate {row['gate']}, {str(row['policy']).replace('_', ' ')}"
    return f"{row['net_bps']:+.2f} bps{bounds} per order after fees, {row['gross_bps']:+.2f} before, with {how}"


def gaining_controls(table: pa.Table, control: str) -> list[str]:
    """Where crossing the spread with a random side, or in the null, gains beyond its bounds: it should lose the spread."""
    gaining = {
        f"gate {row['gate']}, {row['latency_ms']:g} ms"
        for row in table.to_pylist()
        if (row["policy"], row["split"]) == (TAKER, TEST) and (row[f"{control}_lower"] or 0) > 0
    }
    return sorted(gaining)
