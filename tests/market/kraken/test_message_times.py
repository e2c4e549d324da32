"""Kraken's times to nanoseconds: every way it writes them, and nothing that only looks like one."""

import datetime as dt
import re

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from uqlob_pipeline.market.kraken.codes import MISSING, UNREADABLE
from uqlob_pipeline.market.kraken.messages import times

RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{0,9}))?Z", re.ASCII)

MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))
FRACTIONS = st.one_of(st.just(""), st.from_regex(r"\.[0-9]{0,11}", fullmatch=True))


def reference(text: str | None) -> int:
    if text is None:
        return int(MISSING)
    found = RFC_3339.fullmatch(text)
    if not found:
        return int(UNREADABLE)
    seconds = dt.datetime.fromisoformat(found[1] + "+00:00") - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (seconds.days * 86_400 + seconds.seconds) * 10**9 + int((found[2] or "").ljust(9, "0"))


@st.composite
def texts(draw) -> str | None:
    """A time, often of the second before it; sometimes with one character broken; sometimes nothing."""
    text = draw(MOMENTS).strftime("%Y-%m-%dT%H:%M:%S") + draw(FRACTIONS) + "Z"
    if draw(st.booleans()):
        return text
    place = draw(st.integers(19, len(text) - 1) | st.sampled_from([4, 7, 10, 13, 16]))
    return draw(st.sampled_from([text[:place] + "x" + text[place + 1 :], text[:-1], "", None]))


@given(st.lists(texts(), max_size=20).map(lambda found: [text for text in found for _ in range(2)]))
@example(["2026-01-05T00:00:00.Z", "2026-01-05T00:00:00Z", "2026-01-05T00:00:00.123456789Z", "2026-01-05T00:00:00.1234567890Z"])
@example(["", None, "2026-02-28T23:59:59.999999999Z", "2026-03-01T00:00:00Z", "2024-02-29T12:00:00.5Z"])
def test_times_are_nanoseconds_since_1970_missing_or_unreadable(found: list[str | None]) -> None:
    column = pa.array(found, pa.string())
    assert times(column).tolist() == [reference(text) for text in found]
    assert times(column.slice(1)).tolist() == [reference(text) for text in found[1:]]
