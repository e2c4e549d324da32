"""Names and units of the economic tables."""

TRADES, ECONOMICS = "trades", "economic_evaluation"
CALIBRATION, TEST = "calibration", "test"  # the splits that are acted on
BUY, SELL = 1, -1
TAKER, MAKER_CROSS, MAKER_POST, MUST_TRADE = "taker", "maker_cross", "maker_post", "must_trade"
POLICIES = (TAKER, MAKER_CROSS, MAKER_POST, MUST_TRADE)
MARKOUTS_S = (0, 1, 5)  # seconds after a fill; the horizon is the last
MARKOUTS = (*(f"{seconds}s" for seconds in MARKOUTS_S), "h")
BPS = 1e4
