"""UTC days, file names by time, and the check for wrong timestamps, shared by the recorder and the importer."""

import datetime as dt

DAY_NS = 86_400 * 10**9
MIDNIGHT_SILENCE_NS = 10 * 10**9  # a stream that crosses midnight within this time of its last message does not jump


def date_of(day: int) -> dt.date:
    """The date of a day number counted from 1970-01-01."""
    return dt.date.fromordinal(719_163 + day)


def start_time(time: int) -> str:
    """The time as a file name that sorts by time: 20260301T000000.000000Z."""
    seconds, rest = divmod(time, 10**9)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y%m%dT%H%M%S}.{rest // 1000:06d}Z"


def far_ahead(time: int, stream: int, *clocks: int) -> bool:
    """Whether a message's time is a day or more ahead of its stream's latest time and of every other clock.

    A stream's time never decreases, so one such message would move all later ones to a future day: its timestamp is wrong.
    A stream's first message (`stream` is -1) is accepted, because the machine's own clock may be wrong too.
    """
    return stream >= 0 and time >= max(stream, *clocks, -1) + DAY_NS


def jumps_to_later_day(time: int, stream: int, received_at: int) -> bool:
    """Whether a message's time is on a later day than its stream and its receiver's clock, and well ahead of both.

    One such timestamp, if wrong, would move the rest of the day to the next day's file.
    """
    latest = max(stream, received_at)
    return stream >= 0 and time // DAY_NS > latest // DAY_NS and time > latest + MIDNIGHT_SILENCE_NS
