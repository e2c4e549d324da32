"""The type of the functions that receive progress and warnings, one line of text per call."""

from collections.abc import Callable

LogFn = Callable[[str], None]
