"""The columns of the tables, in words: for Dagster's catalogue and for docs/tables.md."""

from typing import Any, NamedTuple


class Column(NamedTuple):
    name: str
    type: str
    description: str


WINDOW = Column("window", "int32", "the window's number within the asset-day, from 0; null in the tail of a session")
HORIZON = Column("horizon_s", "int32", "prediction horizon h, seconds")
SYMBOL = Column("symbol", "string", "as in BTC-USD")

BOOK_EVENTS = [
    Column("seq", "int64", "position among the day's kept events"),
    Column("session", "int32", "counts the snapshots from 0; nothing crosses from one to the next"),
    Column("ts", "int64", "ns UTC, never decreasing"),
    Column("type", "uint8", "0 add, 1 modify, 2 delete, 3 execution"),
    Column("side", "uint8", "0 bid, 1 ask"),
    Column("price_ticks", "int64", "the order's (level 2: the level's) price"),
    Column("lots", "int64", "quantity after an add or modify, removed by a delete or execution; 10^-qty_precision"),
    Column("level", "uint8", "1 to 10, depth rank on its own side"),
    Column("bid_ticks", "int64", "best bid after the message"),
    Column("ask_ticks", "int64", "best ask after the message"),
    Column("bid_lots", "int64", "queue at the best bid after the message"),
    Column("ask_lots", "int64", "queue at the best ask after the message"),
]

EVENT_FEATURES = [
    Column("seq", "int64", "position among the day's kept events, as in book_events"),
    Column("ts", "int64", "time of the event's message, ns UTC"),
    WINDOW,
    Column("position", "uint16", "place within the window, from 0"),
    Column("token", "uint16", "event token: type, side, volume bin, distance bin, simultaneity (0 to 438)"),
    Column("log_dt", "float", "ln(1 + microseconds since the event before); 0 for the first of a session"),
    Column("log_distance", "float", "ln of the ticks from the opposing best quote, at least 1"),
    Column("log_volume", "float", "ln(quantity / median quantity of the training days)"),
    Column("dnfi", "float", "depth-normalised flow imbalance, clipped to [-1, 1] (paper, Eq. DNFI)"),
    Column("dnfi_50", "float", "its sum over the last 50 events of the session, this one included"),
    Column("dnfi_200", "float", "its sum over the last 200 events of the session, this one included"),
    Column("qi", "float", "queue imbalance of the best quotes, in [-1, 1] (paper, Eq. QI)"),
]

TOKEN_BINS = [
    SYMBOL,
    Column("events", "int64", "kept events of the training days"),
    Column("binned_events", "int64", "those that are not executions, which carry no bins"),
    Column("median_lots", "int64", "median quantity of the training days, lots"),
    Column("volume_edges", "int64[5]", "sextile edges of quantity, lots: a value's bin is the number of edges below it"),
    Column("distance_edges", "int64[5]", "sextile edges of the distance from the opposing best quote, ticks"),
    Column("volume_shares", "double[6]", "share of the training events in each volume bin: a sixth, unless quantities tie"),
    Column("distance_shares", "double[6]", "share of the training events in each distance bin: a sixth, unless distances tie"),
]

FEATURE_SCALES = [
    SYMBOL,
    Column("feature", "string", "continuous feature; rows stand in the order of the model's input"),
    Column("mean", "double", "mean over the events of the training windows"),
    Column("std", "double", "standard deviation over the same"),
    Column("events", "int64", "events of the training windows"),
]

WINDOW_PRICES = [
    WINDOW._replace(description="the window's number within the asset-day, from 0"),
    Column("session", "int32", "session of the window, as in book_events"),
    Column("t_end", "int64", "time t of the window's last event: the model's present, ns UTC"),
    HORIZON,
    Column("t_start", "int64", "t + d: when one can have acted, ns UTC"),
    Column("p_start", "double", "mid-price at the first event at or after t_start, ticks; null where the session has none"),
    Column(
        "p_end", "double", "mean mid-price of the k last events at or before t_start + h (paper, Eq. end price); null if unknown"
    ),
    Column("y", "double", "displacement p_end - p_start, ticks; null where the label cannot be known"),
]

LABEL_THRESHOLDS = [
    SYMBOL,
    HORIZON,
    Column("sigma_lr", "double", "standard deviation of ln(p_end / p_start) over the training windows"),
    Column("tau_lr", "double", "alpha * sigma_lr (paper, Eq. threshold)"),
    Column("y_ref", "double", "scale of the displacement, ticks: training median of |y| over y != 0, at least 1; or as printed"),
    Column("windows", "int64", "training windows with a label"),
    Column("zero_share", "double", "share of them with y = 0"),
    Column("down_share", "double", "share of them that the threshold calls down"),
    Column("up_share", "double", "up"),
    Column("stationary_share", "double", "stationary"),
]

WINDOW_LABELS = [
    *WINDOW_PRICES,
    Column("delta", "double", "class threshold p_start (exp(tau_lr) - 1), ticks (paper, Eq. delta)"),
    Column("label", "uint8", "0 down (y <= -delta), 1 up (y >= delta), 2 stationary; null where y is (paper, Eq. label rule)"),
]

DATASET = [
    SYMBOL,
    Column("tick", "double", "minimum price increment, quote currency"),
    Column("days", "int64", "asset-days that are there, of all splits"),
    Column("events", "int64", "kept events"),
    Column("events_per_day", "double", "events / days"),
    Column("events_per_second", "double", "1000 / inter_event_ms"),
    Column("inter_event_ms", "double", "mean time between two events of one session, ms"),
    Column("events_5s", "double", "expected events within 5 s"),
    Column("events_10s", "double", "within 10 s"),
    Column("events_15s", "double", "within 15 s"),
]

THRESHOLDS = [column for column in LABEL_THRESHOLDS if not column.name.endswith("_share") or column.name == "zero_share"]

CLASS_PROPORTIONS = [
    SYMBOL,
    HORIZON,
    Column("split", "string", "train, validation or test"),
    Column("class", "string", "down, up or stationary"),
    Column("share", "double", "share of the split's labelled windows"),
    Column("windows", "int64", "labelled windows of the split"),
]

DRIFT = [
    SYMBOL,
    HORIZON,
    Column("class", "string", "down, up or stationary"),
    Column("drift_pp", "double", "|share in training - share in test|, percentage points (paper, D(s, c, h))"),
]

PREDICTIONS = [
    Column("date", "date32[day]", "UTC day of the window"),
    Column("window", "int32", "the window's number within the asset-day"),
    Column("t", "int64", "time of the window's last event: when the forecast is made, ns UTC"),
    Column("split", "string", "selection, calibration or test"),
    Column("y", "double", "displacement that came about, ticks"),
    Column("delta", "double", "class threshold, ticks"),
    Column("p_start", "double", "mid-price from which the displacement counts, ticks"),
    Column("label", "uint8", "class that came about: 0 down, 1 up, 2 stationary"),
    Column("mu", "double", "regression head: mean, ticks"),
    Column("sigma", "double", "regression head: standard deviation, ticks"),
    Column("snr", "double", "regression head's confidence: |mu| / sigma"),
    Column("p_down", "double", "classification head: probability of down"),
    Column("p_up", "double", "of up"),
    Column("p_stationary", "double", "of stationary"),
    Column("confidence", "double", "classification head's confidence: the largest of the three"),
    Column("classification_class", "uint8", "the class that it belongs to"),
]

CLASSIFIED_PREDICTIONS = [*PREDICTIONS, Column("regression_class", "uint8", "class of mu by the threshold that k* widens")]

THRESHOLD_MULTIPLIER = [
    Column("k", "double", "swept multiplier"),
    Column("predicted_stationary", "double", "share of the calibration half that it calls stationary"),
    Column("true_stationary", "double", "share that is; the same on every row"),
    Column("k_star", "double", "the multiplier chosen; the same on every row"),
    Column("k_star_predicted_stationary", "double", "share that k* calls stationary"),
    Column("windows", "int64", "targets of the calibration half"),
    Column("message", "string", "what is degenerate about this choice; null where nothing is"),
]

GATED_EVALUATION = [
    SYMBOL,
    HORIZON,
    Column("head", "string", "regression or classification"),
    Column("gate_kind", "string", "percentile (least confident q % removed), tier or large_moves (top x % kept)"),
    Column("gate", "int32", "q, or x"),
    Column("metric", "string", "name of the score"),
    Column("value", "double", "its value on the retained test forecasts; null where it is not defined"),
    Column("lower", "double", "2.5 % bound of a block bootstrap over time; null where there are too few blocks"),
    Column("upper", "double", "97.5 % bound"),
    Column("retained", "int64", "forecasts that the gate keeps"),
]

TABLES: dict[str, list[Column]] = {
    "book_events": BOOK_EVENTS,
    "token_bins": TOKEN_BINS,
    "event_features": EVENT_FEATURES,
    "feature_scales": FEATURE_SCALES,
    "window_prices": WINDOW_PRICES,
    "label_thresholds": LABEL_THRESHOLDS,
    "window_labels": WINDOW_LABELS,
    "dataset_profile/dataset": DATASET,
    "dataset_profile/thresholds": THRESHOLDS,
    "dataset_profile/class_proportions": CLASS_PROPORTIONS,
    "dataset_profile/drift": DRIFT,
    "predictions": PREDICTIONS,
    "classified_predictions": CLASSIFIED_PREDICTIONS,
    "threshold_multiplier": THRESHOLD_MULTIPLIER,
    "gated_evaluation": GATED_EVALUATION,
}


def column_schema(table: str) -> dict[str, Any]:
    """The asset metadata that shows a table's columns and their meaning in Dagster's catalogue."""
    import dagster as dg

    columns = [dg.TableColumn(column.name, column.type, description=column.description) for column in TABLES[table]]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}
