"""Sums over orders by group and block of time, collected from `trades` part by part: one part is in memory at a time."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from uqlob_models.bootstrap import Bootstrap
from uqlob_models.metrics import FloatArray as Floats
from uqlob_pipeline.config.economics import FeeTier
from uqlob_pipeline.economics.names import BPS, MARKOUTS, MUST_TRADE

GROUP = ("split", "head", "gate", "policy", "latency_ms", "size")
AMOUNTS = (
    "side", "lots", "filled", "other_filled", "gross_bps", "other_gross_bps", "entry_maker", "exit_maker", "signal_bps", "mid",
    *(f"mid_{after}" for after in MARKOUTS),
)  # fmt: skip
COLUMNS = [*GROUP, "stale", "date", "t", "entry_ts", "exit_ts", *AMOUNTS]

# Sums over orders, whose ratios are the figures. A weight is the filled share of an order.
SUMS = (
    "orders", "filled", "weight", "gross", "taker", "maker", "other_weight", "other_gross", "best_weight", "best_gross",
    "signal_filled", "signal_missed", "holding", *(f"markout_{after}" for after in MARKOUTS),
)  # fmt: skip

Group = tuple[Any, ...]  # the values of GROUP


def order_sums(trades: pa.Table) -> Floats:
    """(orders, SUMS): what each order adds."""
    column = {name: trades[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in AMOUNTS}
    weight, other = column["filled"] / column["lots"], column["other_filled"] / column["lots"]
    gross, other_gross = weight * np.nan_to_num(column["gross_bps"]), other * np.nan_to_num(column["other_gross_bps"])
    # Foresight prefers the side that is not filled to a fill that loses.
    own_is_better = np.where(weight > 0, column["gross_bps"], 0) >= np.where(other > 0, column["other_gross_bps"], 0)
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


def net_of_orders(sums: Floats, tier: FeeTier | None) -> Floats:
    """The net result of each order in bps of one order's size, in order of time."""
    gross = sums[:, SUMS.index("gross")]
    if tier is None:
        return gross
    return gross - sums[:, SUMS.index("taker")] * tier.taker_bps - sums[:, SUMS.index("maker")] * tier.maker_bps


@dataclass
class Path:
    """The running sum of net results, and its largest fall from the highest point so far."""

    level: float = 0.0
    highest: float = 0.0
    drawdown: float = 0.0

    def follow(self, net: Floats) -> None:
        path = self.level + np.cumsum(net)
        highest = np.maximum.accumulate(np.append(self.highest, path))
        self.drawdown = max(self.drawdown, float((highest[1:] - path).max()))
        self.level, self.highest = float(path[-1]), float(highest[-1])


@dataclass
class GroupSums:
    """One group's sums by block, part after part, and its path at each tier."""

    lots: float
    paths: list[Path]
    starts: list[np.ndarray] = field(default_factory=list)
    sums: list[Floats] = field(default_factory=list)

    def add(self, t: np.ndarray, sums: Floats, resampling: Bootstrap) -> None:
        starts, block = resampling.block_starts(t)
        by_block = [np.bincount(block, column, starts.size) for column in sums.T]
        self.starts.append(starts)
        self.sums.append(np.stack(by_block, axis=1))

    def by_block(self) -> Floats:
        """(blocks, SUMS), in order of time; a block that two parts share is one."""
        starts, block = np.unique(np.concatenate(self.starts), return_inverse=True)
        return np.stack([np.bincount(block, column, starts.size) for column in np.concatenate(self.sums).T], axis=1)


@dataclass
class Collected:
    tiers: tuple[FeeTier, ...]
    own: dict[Group, GroupSums] = field(default_factory=dict)
    null: dict[Group, GroupSums] = field(default_factory=dict)
    dates: dict[object, set[object]] = field(default_factory=dict)  # by split

    def tiers_of(self, group: Group) -> tuple[FeeTier | None, ...]:
        return (None,) if group[GROUP.index("policy")] == MUST_TRADE else self.tiers


def group_sums(parts: Iterable[pa.Table], tiers: tuple[FeeTier, ...], resampling: Bootstrap) -> Collected:
    """The sums of every group over all parts, which follow one another in time."""
    found = Collected(tiers)
    for part in parts:
        if not part.num_rows:
            continue
        sums, t, lots = order_sums(part), part["t"].to_numpy(), part["lots"].to_numpy()
        for (*named, stale), chosen in _groups(part):
            group = tuple(named)
            own_tiers, kept = found.tiers_of(group), found.null if stale else found.own
            own = kept.setdefault(group, GroupSums(float(lots[chosen[0]]), [Path() for _ in own_tiers]))
            own.add(t[chosen], sums[chosen], resampling)
            if not stale:
                for tier, path in zip(own_tiers, own.paths, strict=True):
                    path.follow(net_of_orders(sums[chosen], tier))
        for pair in part.select(["split", "date"]).group_by(["split", "date"]).aggregate([]).to_pylist():
            found.dates.setdefault(pair["split"], set()).add(pair["date"])
    return found


def _groups(part: pa.Table) -> list[tuple[Group, np.ndarray]]:
    """The distinct groups of a part (with `stale` as the last value), and the places of each one's orders in their order."""
    names = [*GROUP, "stale"]
    distinct = part.select(names).group_by(names).aggregate([])
    numbered = distinct.append_column("number", pa.array(np.arange(distinct.num_rows)))
    places = part.select(names).append_column("place", pa.array(np.arange(part.num_rows)))
    number = places.join(numbered, keys=names).sort_by("place")["number"].to_numpy()
    counts = np.bincount(number, minlength=distinct.num_rows)
    members = np.split(np.argsort(number, kind="stable"), np.cumsum(counts)[:-1])
    return [(tuple(row.values()), chosen) for row, chosen in zip(distinct.to_pylist(), members, strict=True)]
