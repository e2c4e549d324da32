"""Updates that repeat the line before them, which would double their events."""

from typing import NamedTuple

import numpy as np
from numba import njit

from uqlob_pipeline.market.kraken.codes import UPDATE
from uqlob_pipeline.market.kraken.messages import Batch, Orders


class _Side(NamedTuple):
    start: np.ndarray
    event: np.ndarray
    key: np.ndarray
    price: np.ndarray
    qty: np.ndarray
    ts: np.ndarray


def repeated_updates(batch: Batch, previous: Batch | None) -> np.ndarray:
    """Which messages are updates with all the content of the line before; `previous` is the file's batch before this one."""
    repeated = _repeated(batch.kind, batch.ts, batch.checksum, _side(batch.bids), _side(batch.asks))
    if previous is not None and len(previous) and len(batch):
        repeated[0] = _message(previous, len(previous) - 1) == _message(batch, 0) and batch.kind[0] == UPDATE
    return repeated


def _side(orders: Orders) -> _Side:
    return _Side(orders.start, orders.event, orders.key, orders.price, orders.qty, orders.ts)


def _message(batch: Batch, m: int) -> list[object]:
    """The content of one message, comparable."""
    content: list[object] = [int(batch.kind[m]), int(batch.ts[m]), int(batch.checksum[m])]
    for start, *columns in (_side(batch.bids), _side(batch.asks)):
        content += [column[start[m] : start[m + 1]].tolist() for column in columns]
    return content


@njit(cache=True, nogil=True)
def _repeated(kind: np.ndarray, ts: np.ndarray, checksum: np.ndarray, bids: _Side, asks: _Side) -> np.ndarray:
    repeated = np.zeros(len(kind), np.bool_)
    for m in range(1, len(kind)):
        if kind[m] != UPDATE or kind[m - 1] != UPDATE or ts[m] != ts[m - 1] or checksum[m] != checksum[m - 1]:
            continue
        repeated[m] = _same_orders(bids, m) and _same_orders(asks, m)
    return repeated


@njit(cache=True, nogil=True)
def _same_orders(side: _Side, m: int) -> bool:
    """Whether the orders of message m are those of the message before it."""
    first, count = side.start[m], side.start[m + 1] - side.start[m]
    if first - side.start[m - 1] != count:
        return False
    for i in range(first, first + count):
        j = i - count
        if side.event[i] != side.event[j] or side.key[i] != side.key[j] or side.ts[i] != side.ts[j]:
            return False
        if side.price[i] != side.price[j] or side.qty[i] != side.qty[j]:
            return False
    return True
