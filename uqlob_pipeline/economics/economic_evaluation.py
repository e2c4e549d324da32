"""Writes `economic_evaluation` from `trades`: what is left per order, before and after the fees of every tier.

Every mean is a ratio of sums over blocks of time, so that resampled blocks give its bounds and fees only add a term.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.metrics import FloatArray as Floats
from uqlob_pipeline.config.economics import EconomicsSettings, FeeTier
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.economics.names import CALIBRATION, ECONOMICS, MARKOUTS, TRADES
from uqlob_pipeline.economics.order_sums import COLUMNS, GROUP, SUMS, group_sums
from uqlob_pipeline.economics.verdict import MINIMUM_FILLS, headline, own_rows, verdict
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.file_hashes import verified
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import expected_provenance
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.models.gated_evaluation import bootstrap

SCHEMA = pa.schema([pa.field(column.name, pa.type_for_alias(column.type)) for column in REGISTRY[ECONOMICS].columns])


@dataclass(frozen=True)
class EconomicsDone:
    provenance: Provenance
    table: pa.Table
    headline: dict[str, float]
    verdict: str


def write_economic_evaluation(lake: Lake, profile: Profile, key: ModelKey) -> EconomicsDone:
    provenance = expected_provenance(lake, profile, ECONOMICS, key)
    with pq.ParquetFile(verified(lake.by_model(TRADES, key))) as file:
        parts = (file.read_row_group(number, COLUMNS) for number in range(file.num_row_groups))
        table = evaluate_trades(parts, key, profile.economics, bootstrap(profile))
    write_parquet(table, lake.by_model(ECONOMICS, key), provenance.metadata())
    own = own_rows(table, profile.economics)
    return EconomicsDone(provenance, table, headline(own), verdict(own.to_pylist()))


def evaluate_trades(parts: Iterable[pa.Table], key: ModelKey, settings: EconomicsSettings, resampling: Bootstrap) -> pa.Table:
    """Every figure per split, head, gate, policy, latency, size and fee tier. The parts of `trades` follow one another."""
    found = group_sums(parts, settings.tiers, resampling)
    rows: list[dict[str, object]] = []
    for group in sorted(found.own):
        own, tiers = found.own[group], found.tiers_of(group)
        by_block = own.by_block()
        drawn, total = resampling.draw(by_block), by_block.sum(axis=0)
        per_day = 2 * own.lots * total[SUMS.index("weight")] / len(found.dates[group[0]])
        common = {"symbol": key.symbol, "horizon_s": key.horizon_s, **dict(zip(GROUP, group, strict=True))}
        common |= _scores(total) | {"turnover_lots": per_day, "chosen": False}
        if group in found.null:
            common |= _null(found.null[group].by_block(), resampling)
        bounds = _bounds(drawn, tiers, resampling) if drawn is not None else [{}] * len(tiers)
        for tier, its_bounds, path in zip(tiers, bounds, own.paths, strict=True):
            result = {"total_net_bps": path.level, "drawdown_bps": path.drawdown}
            rows.append(common | _after_fees(total, tier) | its_bounds | result)
    _mark_chosen(rows, settings)
    return pa.Table.from_pylist([{name: _finite(row.get(name)) for name in SCHEMA.names} for row in rows], schema=SCHEMA)


def _null(by_block: Floats, resampling: Bootstrap) -> dict[str, object]:
    """What the orders of stale forecasts earned before fees."""
    total, drawn = by_block.sum(axis=0), resampling.draw(by_block)
    row: dict[str, object] = {
        "null_orders": int(total[SUMS.index("orders")]),
        "null_bps": float(_ratio(total, "gross", "weight")),
    }
    if drawn is not None:
        ends = resampling.interval(_ratio(drawn, "gross", "weight"))
        row |= {f"null_{name}": float(end) for name, end in zip(("lower", "upper"), ends, strict=True)}
    return row


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value  # such as the mean of no fills


def _ratio(sums: Floats, above: str, below: str) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[..., SUMS.index(above)] / sums[..., SUMS.index(below)]


def _fees(sums: Floats, tier: FeeTier | None) -> Floats:
    if tier is None:
        return np.zeros(sums.shape[:-1])
    return _ratio(sums, "taker", "weight") * tier.taker_bps + _ratio(sums, "maker", "weight") * tier.maker_bps


def _random(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        both = sums[..., SUMS.index("gross")] + sums[..., SUMS.index("other_gross")]
        return both / (sums[..., SUMS.index("weight")] + sums[..., SUMS.index("other_weight")])


def _scores(total: Floats) -> dict[str, object]:
    """What does not depend on the fees."""
    missed = total[SUMS.index("orders")] - total[SUMS.index("filled")]
    signal_filled = _ratio(total, "signal_filled", "filled")
    signal_missed = total[SUMS.index("signal_missed")] / missed if missed else np.nan
    return {
        "orders": int(total[SUMS.index("orders")]),
        "filled": int(total[SUMS.index("filled")]),
        "fill_rate": float(_ratio(total, "filled", "orders")),
        "gross_bps": float(_ratio(total, "gross", "weight")),
        "oracle_bps": float(_ratio(total, "best_gross", "best_weight")),
        "random_bps": float(_random(total)),
        "holding_s": float(_ratio(total, "holding", "filled")),
        "signal_filled_bps": float(signal_filled),
        "signal_missed_bps": float(signal_missed),
        "adverse_selection_bps": float(signal_missed - signal_filled),
        **{f"markout_{after}_bps": float(_ratio(total, f"markout_{after}", "filled")) for after in MARKOUTS},
    }


def _after_fees(total: Floats, tier: FeeTier | None) -> dict[str, object]:
    gross, fees = float(_ratio(total, "gross", "weight")), float(_fees(total, tier))
    if tier is None:
        return {"tier": None, "fees_bps": 0.0, "net_bps": gross}
    named = {"tier": tier.name, "taker_bps": tier.taker_bps, "maker_bps": tier.maker_bps}
    return named | {"fees_bps": fees, "net_bps": gross - fees, "break_even_bps": gross / 2}


def _bounds(drawn: Floats, tiers: tuple[FeeTier | None, ...], resampling: Bootstrap) -> list[dict[str, object]]:
    """Bounds before and after the fees of each tier, from the resampled sums."""
    gross = _ratio(drawn, "gross", "weight")
    columns = np.stack([gross, _random(drawn), *(gross - _fees(drawn, tier) for tier in tiers)], axis=1)
    found = []
    ends = [interval.tolist() for interval in resampling.interval(columns)]
    for place, tier in enumerate(tiers, 2):
        row: dict[str, object] = {}
        for name, (before, random, *_), net in zip(("lower", "upper"), ends, (ends[0][place], ends[1][place]), strict=True):
            row |= {f"gross_{name}": before, f"random_{name}": random, f"net_{name}": net}
            if tier is not None:
                row[f"break_even_{name}"] = before / 2
        found.append(row)
    return found


def _mark_chosen(rows: list[dict[str, object]], settings: EconomicsSettings) -> None:
    """At each tier, and for must_trade, the head, gate and policy with the best net result of the calibration half."""
    own = [row for row in rows if row["latency_ms"] == settings.latency_ms and row["size"] == settings.sizes[0]]
    for name in (*(tier.name for tier in settings.tiers), None):
        at_tier = [row for row in own if row["tier"] == name]
        known = [row for row in at_tier if row["split"] == CALIBRATION and int(str(row["filled"])) >= MINIMUM_FILLS]
        if not known:
            continue
        best = max(known, key=lambda row: float(str(row["net_bps"])))
        for row in at_tier:
            row["chosen"] = all(row[name] == best[name] for name in ("head", "gate", "policy"))
