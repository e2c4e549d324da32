"""Writes `trades`: every order that a head, gate, policy and latency would have sent, and what became of it.

One day's events are in memory at a time. A day's policies are executed once for both sides of every forecast, whatever the heads
and gates; these only choose among the outcomes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from uqlob_pipeline.config.economics import EconomicsSettings
from uqlob_pipeline.config.profile import Profile
from uqlob_pipeline.economics.day_events import Clock, mid, read_day_events
from uqlob_pipeline.economics.event_arrays import DayEvents
from uqlob_pipeline.economics.names import (
    BPS,
    CALIBRATION,
    MAKER_CROSS,
    MAKER_POST,
    MARKOUTS_S,
    MUST_TRADE,
    POLICIES,
    TAKER,
    TRADES,
)
from uqlob_pipeline.economics.policies import Executions, Orders, admit, maker, markouts, must_trade, taker
from uqlob_pipeline.economics.signals import Signal, acting_rows, signals_of
from uqlob_pipeline.lake.atomic_files import atomic_path
from uqlob_pipeline.lake.file_hashes import read_table
from uqlob_pipeline.lake.layout import AssetDay, Lake, ModelKey
from uqlob_pipeline.lake.log_function import LogFn
from uqlob_pipeline.lake.provenance import Provenance
from uqlob_pipeline.lake.staleness import NotReady, expected_provenance, require_input
from uqlob_pipeline.lake.table_registry import REGISTRY
from uqlob_pipeline.models.evaluation_files import CALIBRATED, MULTIPLIER, read_whole
from uqlob_pipeline.models.gated_evaluation import read_k_star
from uqlob_pipeline.models.inputs import read_threshold

SCHEMA = pa.schema([pa.field(column.name, pa.type_for_alias(column.type)) for column in REGISTRY[TRADES].columns])


@dataclass(frozen=True)
class TradesDone:
    provenance: Provenance
    orders: int
    filled: int
    lots: int  # of one order: the first of the profile's sizes
    level3: bool


@dataclass(frozen=True)
class Plan:
    """What is traded: the forecasts of all days, the decisions on them, and the size of one order."""

    rows: pa.Table
    signals: list[Signal]
    median_queue: int
    horizon_s: int
    settings: EconomicsSettings

    def lots(self, size: float) -> int:
        return max(1, round(size * self.median_queue))

    def runs(self) -> Iterator[tuple[str, float, float]]:
        """Policy, latency in ms and size: every latency at the traded size, every size at the own latency."""
        settings = self.settings
        for policy, latency, size in product(POLICIES, settings.latencies_ms, settings.sizes):
            if size == settings.sizes[0] or latency == settings.latency_ms:
                yield policy, latency, size


def write_trades(lake: Lake, profile: Profile, key: ModelKey, log: LogFn) -> TradesDone:
    """Execute the decisions of every head and gate, day by day."""
    provenance = expected_provenance(lake, profile, TRADES, key)
    predictions = read_whole(lake.by_model(CALIBRATED, key))
    if "mu" in predictions.column_names:
        require_input(lake, profile, f"{TRADES} of {key}", MULTIPLIER, key)
    k_star = read_k_star(lake, key) if "mu" in predictions.column_names else 1.0
    threshold = read_threshold(lake, profile, key, needed_by=TRADES)
    rows = acting_rows(predictions)
    plan = Plan(
        rows=rows,
        signals=signals_of(predictions, profile.economics.gates, threshold.tau, k_star),
        median_queue=_median_queue(lake, key, rows),
        horizon_s=key.horizon_s,
        settings=profile.economics,
    )
    orders = filled = 0
    level3 = True
    with (
        atomic_path(lake.by_model(TRADES, key), hashed=True) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        dates = rows["date"].to_numpy()
        for date in np.unique(dates):
            day = AssetDay(key.symbol, date.astype("datetime64[D]").item())
            table = day_trades(read_day_events(lake.book_events(day)), plan, np.flatnonzero(dates == date))
            writer.write_table(table)
            of_forecasts = table.filter(pc.invert(table["stale"]))
            orders += of_forecasts.num_rows
            filled += int((of_forecasts["filled"].to_numpy() > 0).sum())
            level3 &= lake.book_dumps(day)[0] == "level3"
            log(f"{key}: {of_forecasts.num_rows:,} orders on {day.date}")
        writer.add_key_value_metadata(provenance.metadata())
    return TradesDone(provenance, orders, filled, plan.lots(profile.economics.sizes[0]), level3)


def _median_queue(lake: Lake, key: ModelKey, rows: pa.Table) -> int:
    """The median quantity at the best quotes when the forecasts of the calibration half were made."""
    chosen = np.array(rows["split"].to_pylist()) == CALIBRATION
    if not chosen.any():
        raise NotReady(
            f"{TRADES} of {key}: the calibration half holds no forecast, so that no size can be chosen. Validate on more days"
        )
    dates, t, queues = rows["date"].to_numpy(), rows["t"].to_numpy(), []
    for date in np.unique(dates[chosen]):
        path = lake.book_events(AssetDay(key.symbol, date.astype("datetime64[D]").item()))
        table = read_table(path, columns=["ts", "bid_lots", "ask_lots"])
        event = np.searchsorted(table["ts"].to_numpy(), t[chosen & (dates == date)], side="right") - 1
        queues += [table[name].to_numpy()[event] for name in ("bid_lots", "ask_lots")]
    return int(np.median(np.concatenate(queues)))


def _policy(name: str, settings: EconomicsSettings, horizon_s: int, latency: int) -> Callable[..., Executions]:
    patience = min(
        round(min(settings.patience_s, horizon_s / 2) * 1e9), horizon_s * 10**9 - latency
    )  # filled before it is closed
    policies: dict[str, Callable[..., Executions]] = {
        TAKER: taker,
        MAKER_CROSS: partial(maker, patience=patience, post_exit=False),
        MAKER_POST: partial(maker, patience=patience, post_exit=True),
        MUST_TRADE: must_trade,
    }
    return policies[name]


def day_trades(events: DayEvents, plan: Plan, chosen: np.ndarray) -> pa.Table:
    """The orders of one day; `chosen` are its rows among the plan's.

    At the own latency and the traded size, the table also contains the null: the same decisions made from outdated forecasts.
    """
    clock, t, hold = Clock.of(events), plan.rows["t"].to_numpy()[chosen], plan.horizon_s * 10**9
    tables = []
    for name, latency_ms, size in plan.runs():
        orders = Orders.both_sides(t, plan.lots(size))
        latency = round(latency_ms * 1e6)
        executions = _policy(name, plan.settings, plan.horizon_s, latency)(events, clock, orders, latency, hold)
        outcomes = _outcomes(events, clock, orders, executions, hold)
        tradeable = executions.exit_ts if name != MUST_TRADE else orders.t  # must-trade orders have no open position
        own = latency_ms == plan.settings.latency_ms and size == plan.settings.sizes[0]
        for signal, stale in product(plan.signals, (False, True) if own else (False,)):
            source = stale_forecasts(t, plan.settings.null_delay_s) if stale else np.arange(len(t))
            side = np.where(source >= 0, signal.side[chosen][source], 0)
            acts = np.flatnonzero(side)
            order = acts + np.where(side[acts] > 0, 0, len(t))
            admitted = admit(t[acts], tradeable[order], plan.settings.max_open)
            acts, order = acts[admitted], order[admitted]
            mirror, forecast = (order + len(t)) % (2 * len(t)), chosen[source[acts]]
            columns = {column: values[order] for column, values in outcomes.items()}
            columns |= {
                "other_filled": outcomes["filled"][mirror],
                "other_gross_bps": outcomes["gross_bps"][mirror],
                "forecast": signal.forecast[forecast],
                "forecast_lower": signal.lower[forecast],
                "forecast_upper": signal.upper[forecast],
            }
            windows = plan.rows.select(["date", "window", "split"]).take(chosen[acts])
            named = {
                "head": signal.head,
                "policy": name,
                "size": size,
                "latency_ms": latency_ms,
                "gate": signal.gate,
                "stale": stale,
            }
            tables.append(_table(columns, windows, named))
    return pa.concat_tables(tables)


def stale_forecasts(t: np.ndarray, delay_s: float) -> np.ndarray:
    """For each forecast, the last one that is at least `delay_s` older, too old to predict the next price move; -1 for none."""
    return np.searchsorted(t, t - round(delay_s * 1e9), side="right") - 1


def _table(columns: dict[str, np.ndarray], windows: pa.Table, named: dict[str, object]) -> pa.Table:
    """Columns in the order and the types of the registry; NaN is null."""
    arrays = []
    for field in SCHEMA:
        if field.name in named:
            arrays.append(pa.repeat(pa.scalar(named[field.name], field.type), windows.num_rows))
        elif field.name in windows.column_names:
            arrays.append(windows[field.name].combine_chunks().cast(field.type))
        else:
            arrays.append(pa.array(columns[field.name], from_pandas=True).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _outcomes(events: DayEvents, clock: Clock, orders: Orders, executions: Executions, hold: int) -> dict[str, np.ndarray]:
    """What became of every order, with the mid-prices around it."""
    decision_mid = mid(events, clock.last_event(orders.t))
    after = (*(seconds * 10**9 for seconds in MARKOUTS_S), hold)
    mids = markouts(events, clock, orders, executions.entry_ts, after)
    signal = markouts(events, clock, orders, executions.arrival, (0, hold))
    return {
        "t": orders.t,
        "side": orders.side,
        "lots": orders.lots,
        "arrival": executions.arrival,
        "queue_place": executions.queue_place,
        "filled": executions.filled,
        "entry_ts": executions.entry_ts,
        "entry_price": executions.entry_price,
        "entry_maker": executions.entry_maker,
        "exit_ts": executions.exit_ts,
        "exit_price": executions.exit_price,
        "exit_maker": executions.exit_maker,
        "mid": decision_mid,
        **{f"mid_{seconds}s": mids[:, place] for place, seconds in enumerate(MARKOUTS_S)},
        "mid_h": mids[:, -1],
        "signal_bps": orders.side * (signal[:, 1] - signal[:, 0]) / decision_mid * BPS,
        "gross_bps": orders.side * (executions.exit_price - executions.entry_price) / decision_mid * BPS,
    }


def trade_faults(path: Path) -> dict[str, int]:
    """Counts of what would be impossible in a file of trades."""
    names = ["t", "arrival", "entry_ts", "exit_ts", "lots", "filled", "entry_price", "exit_price"]
    table = read_table(path, columns=names)
    column = {name: table[name].to_numpy(zero_copy_only=False) for name in names}
    filled = column["filled"] > 0
    return {
        "arrivals_before_the_decision": int((column["arrival"] < column["t"]).sum()),
        "fills_before_the_arrival": int((column["entry_ts"] < column["arrival"]).sum()),
        "exits_before_the_fill": int((column["exit_ts"] < column["entry_ts"]).sum()),
        "filled_more_than_ordered": int((column["filled"] > column["lots"]).sum()),
        "filled_without_prices": int((filled & ~(np.isfinite(column["entry_price"]) & np.isfinite(column["exit_price"]))).sum()),
    }
