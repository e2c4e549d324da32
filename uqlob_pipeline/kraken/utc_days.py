"""Which UTC day a message belongs to, and how a dump is named by its time: one rule for the recorder and the importer."""

import datetime as dt

DAY_NS = 86_400 * 10**9


def date_of(day: int) -> dt.date:
    """The date of a day since 1970."""
    return dt.date.fromordinal(719_163 + day)


def start_time(time: int) -> str:
    """A file's name in order of time: 20260301T000000.000000Z."""
    seconds, rest = divmod(time, 10**9)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y%m%dT%H%M%S}.{rest // 1000:06d}Z"


def far_ahead(time: int, stream: int, *clocks: int) -> bool:
    """Whether a message's time is a day or more ahead of its stream's newest and of every other clock there is.

    A stream's messages come in the order of their times, so that one such time would carry all that follows it to a day that
    has not been: it is the time that is wrong. A stream's first message (`stream` is -1) is believed, for a machine's clock may
    be wrong too.
    """
    return stream >= 0 and time >= max(stream, *clocks, -1) + DAY_NS
