"""Stylised facts of a simulated symbol, from the `book_events` of one day that went through the pipeline."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

SIGNATURE_STEPS_S = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
RESPONSE_LAGS_S = (0.0, 0.1, 1.0, 5.0, 15.0, 30.0)
SIGN_LAGS = (1, 2, 5, 10, 20, 50)
CLUSTERING_LAGS = (1, 2, 6, 12, 60)  # steps of 5 s
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
EXECUTION = 3


def stylised_facts(root: Path, symbol: str, seed: int, hours: float) -> dict[str, Any]:
    """Simulates a day below `root`, replays it, and measures it."""
    import numpy as np
    import pyarrow.parquet as pq

    from uqlob_pipeline.config.profile import load_profile
    from uqlob_pipeline.lake.layout import AssetDay, Lake
    from uqlob_pipeline.lake.warehouse import Warehouse
    from uqlob_pipeline.market.kraken.ingest import write_book_events
    from uqlob_pipeline.market.simulator import MarketSettings, simulate_day
    from uqlob_pipeline.market.simulator.market_statistics import (
        autocorrelation,
        hourly_shape,
        on_grid,
        order_response,
        signature_plot,
    )

    profile = load_profile("paper")
    lake, day = Lake(root), AssetDay(symbol, dt.date(2026, 1, 5))
    simulate_day(root, symbol, day.date, MarketSettings(seed=seed, hours=hours))
    write_book_events(lake, Warehouse(lake, profile.duckdb), profile, day)
    columns = ["ts", "type", "side", "bid_ticks", "ask_ticks", "bid_lots", "ask_lots"]
    table = pq.read_table(lake.book_events(day), columns=columns, partitioning=None)
    events = {name: table[name].to_numpy() for name in columns}
    ts, mid = events["ts"], (events["bid_ticks"] + events["ask_ticks"]) / 2
    executed = events["type"] == EXECUTION
    # An execution of a bid order is a sell; a market order that fills several orders at one time is one trade.
    trade_ts, first = np.unique(ts[executed], return_index=True)
    signs = np.where(events["side"][executed][first] == 0, -1, 1)
    returns = np.diff(np.log(on_grid(ts, mid, 5.0)))
    lots = 10.0 ** -profile.instruments[symbol].qty_precision
    spread, queue = events["ask_ticks"] - events["bid_ticks"], (events["bid_lots"] + events["ask_lots"]) * lots / 2
    return {
        "events": len(ts),
        "event_mix": [float(np.mean(events["type"] == kind)) for kind in range(4)],
        "quantiles": list(QUANTILES),
        "spread_ticks": [float(q) for q in np.quantile(spread, QUANTILES)],
        "queue_quantity": [float(q) for q in np.quantile(queue, QUANTILES)],
        "kurtosis_5s": float(np.mean((returns - returns.mean()) ** 4) / np.var(returns) ** 2),
        "clustering_lags_s": [5 * lag for lag in CLUSTERING_LAGS],
        "clustering": autocorrelation(np.abs(returns), CLUSTERING_LAGS),
        "return_autocorrelation": autocorrelation(returns, CLUSTERING_LAGS),
        "sign_lags": list(SIGN_LAGS),
        "sign_autocorrelation": autocorrelation(signs, SIGN_LAGS),
        "signature_steps_s": list(SIGNATURE_STEPS_S),
        "signature": signature_plot(ts, mid, SIGNATURE_STEPS_S),
        "response_lags_s": list(RESPONSE_LAGS_S),
        "response_ticks": order_response(trade_ts, signs, ts, mid, RESPONSE_LAGS_S),
        "hourly_shape": [None if np.isnan(v) else v for v in hourly_shape(ts, np.ones(len(ts)))],
    }
