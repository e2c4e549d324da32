"""Runs orders through hftbacktest, in a virtual environment of its own: python hftbacktest_engine.py INPUT.npz OUTPUT.npz.

Takers cross with a limit far beyond the market and close after the hold. Makers post at the best price and cancel after the
patience. Every decision is alone: the next one comes after the last has ended.
"""

import sys

import numpy as np
from hftbacktest import BUY, FILLED, GTC, GTX, LIMIT, BacktestAsset, HashMapMarketDepthBacktest
from numba import njit


@njit
def run_takers(hbt, t, side, hold, tick, entry, exit_):
    hbt.elapse(0)  # without it nothing trades
    number = 1
    for i in range(len(t)):
        for leg in range(2):
            hbt.elapse(t[i] + leg * hold - hbt.current_timestamp)
            buys = (side[i] == 1) == (leg == 0)
            if buys:
                hbt.submit_buy_order(0, number, 1e6 * 10, 1.0, GTC, LIMIT, False)
            else:
                hbt.submit_sell_order(0, number, tick, 1.0, GTC, LIMIT, False)
            hbt.wait_order_response(0, number, 10_000_000_000)
            price = hbt.orders(0).get(number).exec_price_tick
            if leg == 0:
                entry[i] = price
            else:
                exit_[i] = price
            hbt.clear_inactive_orders(0)
            number += 1


@njit
def run_makers(hbt, t, side, patience, latency, ticks, filled, filled_at):
    hbt.elapse(0)
    number = 1
    for i in range(len(t)):
        hbt.elapse(t[i] - hbt.current_timestamp)
        depth = hbt.depth(0)
        if side[i] == 1:
            ticks[i] = depth.best_bid_tick
            hbt.submit_buy_order(0, number, ticks[i] * depth.tick_size, 1.0, GTX, LIMIT, False)
        else:
            ticks[i] = depth.best_ask_tick
            hbt.submit_sell_order(0, number, ticks[i] * depth.tick_size, 1.0, GTX, LIMIT, False)
        hbt.elapse(patience)
        hbt.cancel(0, number, False)
        hbt.elapse(3 * latency)
        order = hbt.orders(0).get(number)
        filled[i] = order.status == FILLED
        filled_at[i] = order.exch_timestamp
        hbt.clear_inactive_orders(0)
        number += 1


def engine(given: "np.lib.npyio.NpzFile", events: np.ndarray) -> "HashMapMarketDepthBacktest":
    """The engine keeps a pointer to the events: they must outlive it."""
    latency = int(given["latency"])
    asset = (
        BacktestAsset()
        .data(events)
        .linear_asset(1.0)
        .constant_order_latency(latency, 0)
        .l3_fifo_queue_model()
        .no_partial_fill_exchange()
        .trading_value_fee_model(0.0, 0.0)
        .tick_size(float(given["tick"]))
        .lot_size(1e-8)
    )
    return HashMapMarketDepthBacktest([asset])


def main() -> None:
    given = np.load(sys.argv[1])
    events, t, side = np.ascontiguousarray(given["events"]), given["t"], given["side"]
    entry, exit_, ticks, filled_at = (np.zeros(len(t), np.int64) for _ in range(4))
    filled = np.zeros(len(t), np.bool_)
    run_takers(engine(given, events), t, side, int(given["hold"]), float(given["tick"]), entry, exit_)
    run_makers(engine(given, events), t, side, int(given["patience"]), int(given["latency"]), ticks, filled, filled_at)
    np.savez(sys.argv[2], entry=entry, exit=exit_, ticks=ticks, filled=filled, filled_at=filled_at)


if __name__ == "__main__":
    assert BUY == 1
    main()
