"""The fixed pieces of text of the messages, as bytes for numba."""

import numpy as np


def _text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8).copy()


TEXT_UPDATE_3 = _text('{"channel":"level3","type":"update","data":[{"checksum":')
TEXT_SNAPSHOT_3 = _text('{"channel":"level3","type":"snapshot","data":[{"symbol":')
TEXT_UPDATE_2 = _text('{"channel":"book","type":"update","data":[{"symbol":')
TEXT_SNAPSHOT_2 = _text('{"channel":"book","type":"snapshot","data":[{"symbol":')
TEXT_TRADES = _text('{"channel":"trade","type":"update","data":[')
TEXT_HEARTBEAT = _text('{"channel":"heartbeat"}\n')
TEXT_SYMBOL, TEXT_CHECKSUM, TEXT_TIMESTAMP = _text(',"symbol":'), _text(',"checksum":'), _text(',"timestamp":')
TEXT_BIDS, TEXT_ASKS, TEXT_END = _text(',"bids":['), _text('],"asks":['), _text("}]}\n")
TEXT_ADD, TEXT_MODIFY, TEXT_DELETE = (
    _text('{"event":"add","order_id":'),
    _text('{"event":"modify","order_id":'),
    _text('{"event":"delete","order_id":'),
)
TEXT_ORDER, TEXT_LIMIT_PRICE, TEXT_ORDER_QTY = _text('{"order_id":'), _text(',"limit_price":'), _text(',"order_qty":')
TEXT_PRICE, TEXT_QTY = _text('{"price":'), _text(',"qty":')
TEXT_TRADE_SYMBOL, TEXT_BUY, TEXT_SELL = _text('{"symbol":'), _text(',"side":"buy","price":'), _text(',"side":"sell","price":')
TEXT_MARKET, TEXT_LIMIT, TEXT_TRADE_ID = _text(',"ord_type":"market"'), _text(',"ord_type":"limit"'), _text(',"trade_id":')
