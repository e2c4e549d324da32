"""Tables in Dagster's metadata."""

import datetime as dt

from uqlob_pipeline.defs.labels.assets import table


def test_a_table_with_a_date_is_shown() -> None:
    (record,) = table([{"symbol": "BTC-USD", "date": dt.date(2026, 1, 10), "share": 0.123456789}]).records
    assert dict(record.data) == {"symbol": "BTC-USD", "date": "2026-01-10", "share": 0.123457}
