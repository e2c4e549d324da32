"""Writes `economic_evaluation` from `trades`: what is left per order, before and after the fees of every tier.

Every mean is a ratio of sums over blocks of time, so that resampled blocks give its bounds and fees only add a term.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.metrics import FloatArray as Floats
from uqlob_pipeline.config.economics import EconomicsSettings, FeeTier
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.economics.verdict import MINIMUM_FILLS, headline, own_rows, verdict
from uqlob_pipeline.economics.vocabulary import BPS, CALIBRATION, ECONOMICS, MARKOUTS, MUST_TRADE, TEST, TRADES
from uqlob_pipeline.lake.atomic_files import write_parquet
from uqlob_pipeline.lake.layout import Lake, ModelKey
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import expected_provenance
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.models.evaluation_files import read_whole
from uqlob_pipeline.models.gated_evaluation import bootstrap

GROUP = ("split", "head", "gate", "policy", "latency_ms", "size")
SCHEMA = pa.schema([pa.field(column.name, pa.type_for_alias(column.type)) for column in REGISTRY[ECONOMICS].columns])

# Sums over orders, whose ratios are the figures. A weight is the filled share of an order.
SUMS = (
    "orders", "filled", "weight", "gross", "taker", "maker", "other_weight", "other_gross", "best_weight", "best_gross",
    "signal_filled", "signal_missed", "holding", *(f"markout_{after}" for after in MARKOUTS),
)  # fmt: skip


@dataclass(frozen=True)
class EconomicsDone:
    provenance: Provenance
    table: pa.Table
    headline: dict[str, float]
    verdict: str


def write_economic_evaluation(lake: Lake, profile: Profile, key: ModelKey) -> EconomicsDone:
    provenance = expected_provenance(lake, profile, ECONOMICS, key)
    trades = read_whole(lake.by_model(TRADES, key))
    table = evaluate_trades(trades, key, profile.economics, bootstrap(profile))
    write_parquet(table, lake.by_model(ECONOMICS, key), provenance.metadata())
    own = own_rows(table, profile.economics)
    return EconomicsDone(provenance, table, headline(own), verdict(own.to_pylist()))


def order_sums(trades: pa.Table) -> Floats:
    """(orders, SUMS): what each order adds."""
    column = {
        name: trades[name].to_numpy(zero_copy_only=False).astype(np.float64)
        for name in trades.column_names
        if name not in ("date", "split", "head", "policy")
    }
    weight, other = column["filled"] / column["lots"], column["other_filled"] / column["lots"]
    gross, other_gross = weight * np.nan_to_num(column["gross_bps"]), other * np.nan_to_num(column["other_gross_bps"])
    own_is_better = np.where(weight > 0, column["gross_bps"], -np.inf) >= np.where(other > 0, column["other_gross_bps"], -np.inf)
    filled, holding = weight > 0, (trades["exit_ts"].to_numpy() - trades["entry_ts"].to_numpy()) / 1e9
    sums = {
        "orders": np.ones(len(weight)),
        "filled": filled,
        "weight": weight,
        "gross": gross,
        "taker": weight * (2 - column["entry_maker"] - column["exit_maker"]),
        "maker": weight * (column["entry_maker"] + column["exit_maker"]),
        "other_weight": other,
        "other_gross": other_gross,
        "best_weight": np.where(own_is_better, weight, other),
        "best_gross": np.where(own_is_better, gross, other_gross),
        "signal_filled": np.where(filled, column["signal_bps"], 0),
        "signal_missed": np.where(filled, 0, column["signal_bps"]),
        "holding": np.where(filled, holding, 0),
    }
    for after in MARKOUTS:
        moved = column["side"] * (column[f"mid_{after}"] - column["mid"]) / column["mid"] * BPS
        sums[f"markout_{after}"] = np.where(filled, moved, 0)
    return np.stack([np.asarray(sums[name], np.float64) for name in SUMS], axis=1)


def evaluate_trades(trades: pa.Table, key: ModelKey, settings: EconomicsSettings, resampling: Bootstrap) -> pa.Table:
    """Every figure per split, head, gate, policy, latency, size and fee tier."""
    null = _null_figures(trades.filter(trades["stale"]), resampling)
    trades = trades.filter(pc.invert(trades["stale"]))
    groups, number = _groups(trades)
    sums, t = order_sums(trades), trades["t"].to_numpy()
    days = {
        split: pc.count_distinct(trades.filter(pc.equal(trades["split"], split))["date"]).as_py() for split in (CALIBRATION, TEST)
    }
    rows: list[dict[str, object]] = []
    members = _members(number, len(groups))
    for place, group in enumerate(groups):
        chosen = members[place]
        by_block = _by_block(resampling, t[chosen], sums[chosen])
        drawn = resampling.draw(by_block)
        tiers: tuple[FeeTier | None, ...] = (None,) if group["policy"] == MUST_TRADE else settings.tiers
        named = {"symbol": key.symbol, "horizon_s": key.horizon_s, **group}
        lots = float(trades["lots"][int(chosen[0])].as_py()) if len(chosen) else 0.0
        per_day = 2 * lots * by_block[:, SUMS.index("weight")].sum() / max(days[str(group["split"])], 1)
        common = named | _scores(by_block.sum(axis=0)) | {"turnover_lots": per_day, "chosen": False}
        common |= null.get(tuple(group[name] for name in GROUP), {})
        bounds = _bounds(drawn, tiers, resampling) if drawn is not None else [{}] * len(tiers)
        for tier, its_bounds in zip(tiers, bounds, strict=True):
            net = _net_of_orders(sums[chosen], tier)
            rows.append(common | _after_fees(by_block.sum(axis=0), tier) | its_bounds | _path(net))
    _mark_chosen(rows, settings)
    return pa.Table.from_pylist([{name: _finite(row.get(name)) for name in SCHEMA.names} for row in rows], schema=SCHEMA)


def _null_figures(stale: pa.Table, resampling: Bootstrap) -> dict[tuple[object, ...], dict[str, object]]:
    """What the orders of stale forecasts earned before fees, by group."""
    groups, number = _groups(stale)
    sums, t, found = order_sums(stale), stale["t"].to_numpy(), {}
    for group, chosen in zip(groups, _members(number, len(groups)), strict=True):
        by_block = _by_block(resampling, t[chosen], sums[chosen])
        drawn = resampling.draw(by_block)
        row: dict[str, object] = {"null_orders": len(chosen), "null_bps": float(_ratio(by_block.sum(axis=0), "gross", "weight"))}
        if drawn is not None:
            ends = resampling.interval(_ratio(drawn, "gross", "weight"))
            row |= {f"null_{name}": float(end) for name, end in zip(("lower", "upper"), ends, strict=True)}
        found[tuple(group[name] for name in GROUP)] = row
    return found


def _members(number: np.ndarray, groups: int) -> list[np.ndarray]:
    """The places of each group's orders, in their order."""
    return np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number, minlength=groups))[:-1]) if groups else []


def _by_block(resampling: Bootstrap, t: np.ndarray, sums: Floats) -> Floats:
    """The sums of each block of time: (blocks, SUMS)."""
    starts, block = resampling.block_starts(t)
    by_block = np.zeros((starts.size, sums.shape[1]))
    for column in range(sums.shape[1]):
        by_block[:, column] = np.bincount(block, sums[:, column], starts.size)
    return by_block


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value  # such as the mean of no fills


def _groups(trades: pa.Table) -> tuple[list[dict[str, object]], np.ndarray]:
    """The distinct groups in a fixed order, and the number of each order's group."""
    distinct = trades.select(GROUP).group_by(list(GROUP)).aggregate([]).sort_by([(name, "ascending") for name in GROUP])
    numbered = distinct.append_column("number", pa.array(np.arange(distinct.num_rows)))
    places = trades.select(GROUP).append_column("place", pa.array(np.arange(trades.num_rows)))
    joined = places.join(numbered, keys=list(GROUP)).sort_by("place")
    return distinct.to_pylist(), joined["number"].to_numpy()


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


def _net_of_orders(sums: Floats, tier: FeeTier | None) -> Floats:
    """The net result of each order in bps of one order's size, in order of time."""
    gross = sums[:, SUMS.index("gross")]
    if tier is None:
        return gross
    return gross - sums[:, SUMS.index("taker")] * tier.taker_bps - sums[:, SUMS.index("maker")] * tier.maker_bps


def _path(net: Floats) -> dict[str, object]:
    path = np.append(0.0, np.cumsum(net))
    return {"total_net_bps": float(path[-1]), "drawdown_bps": float((np.maximum.accumulate(path) - path).max())}


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
