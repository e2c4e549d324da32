"""Orders written by hand, as rows of `trades`."""

import datetime as dt

import numpy as np
import pyarrow as pa

from uqlob_pipeline.economics.names import BUY, POLICIES, TAKER
from uqlob_pipeline.lake.table_registry import REGISTRY

MINUTE = 60 * 10**9


def order(number: int, **changed: object) -> dict[str, object]:
    """A filled taker order to buy 10 lots at a mid of 10,000 ticks: entry 10,001, exit 10,011."""
    t = number * MINUTE
    row: dict[str, object] = {
        "date": dt.date(2026, 1, 5), "window": number, "split": "test", "t": t, "head": "regression", "gate": 0, "policy": TAKER,
        "latency_ms": 5.0, "size": 0.1, "stale": False, "side": BUY, "lots": 10, "filled": 10, "arrival": t + 5,
        "queue_place": -1,
        "entry_ts": t + 5, "entry_price": 10_001.0, "entry_maker": False, "exit_ts": t + 5 + 5 * 10**9, "exit_price": 10_011.0,
        "exit_maker": 0.0, "mid": 10_000.0, "mid_0s": 10_000.0, "mid_1s": 10_004.0, "mid_5s": 10_012.0, "mid_h": 10_012.0,
        "signal_bps": 12.0, "gross_bps": 10.0, "other_filled": 10, "other_gross_bps": -14.0, "forecast": 12.0,
        "forecast_lower": 2.0, "forecast_upper": 22.0,
    }  # fmt: skip
    return row | changed


def trades(rows: list[dict[str, object]]) -> pa.Table:
    schema = pa.schema([pa.field(c.name, pa.type_for_alias(c.type)) for c in REGISTRY["trades"].columns])
    return pa.Table.from_pylist(rows, schema=schema)


def random_trades(seed: int) -> pa.Table:
    """Thirty orders of every head, gate and policy in both splits, and thirty of the null, with random results."""
    rng = np.random.default_rng(seed)
    rows = []
    for start, split in enumerate(("calibration", "test")):
        for head in ("regression", "classification"):
            for gate in (0, 90):
                for policy in POLICIES:
                    for number, gross in enumerate(rng.normal(0.2, 1, 30)):
                        named = {"split": split, "head": head, "gate": gate, "policy": policy, "entry_maker": "maker" in policy}
                        number += 1_000 * start
                        rows.append(order(number, gross_bps=gross, other_gross_bps=-gross - 0.5, **named))
                        rows.append(order(number, gross_bps=gross - 0.4, other_gross_bps=-gross, stale=True, **named))
    return trades(rows)
