"""Passes over a whole lake that look at each partition once, however many tables read it.

A fit is an input of every day of its symbol and has every training day as an input: without memoisation, the time of a pass
would grow with the square of the number of days.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from uqlob_pipeline.config.profile import Profile

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_ABSENT: Any = object()
_results: ContextVar[dict[tuple[Any, ...], Any] | None] = ContextVar("results of this pass", default=None)


@contextmanager
def one_pass() -> Iterator[None]:
    """Until its end, functions marked with `once_per_pass` return what they returned first.

    For passes that only read: what is written meanwhile is seen by the next one.
    """
    if _results.get() is not None:
        yield
        return
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


def once_per_pass(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Keep what a function of the lake, the profile and a partition returns during a pass. Positional arguments only."""

    @wraps(function)
    def remembering(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        results = _results.get()
        if results is None:
            return function(*args, **kwargs)
        call = (function, *[id(argument) if type(argument) is Profile else argument for argument in args])
        result: Result = results.get(call, _ABSENT)
        if result is _ABSENT:
            result = results[call] = function(*args, **kwargs)
        return result

    return remembering
