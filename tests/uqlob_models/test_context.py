"""The context index against a literal Algorithm 1, and the property that matters: nothing in it was unknown at the time."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uqlob_models.context import causal_context


def algorithm_1(t: list[int], has_label: list[bool], target: int, h: int, d: int, size: int, age: float = np.inf) -> list[int]:
    """The paper's three lines, plus the demands that a context window has a label at all and is not too old."""
    candidates = [j for j in range(target) if has_label[j] and t[j] + d + h <= t[target] and t[target] - t[j] <= age]
    most_recent = sorted(candidates, key=lambda j: (t[j], j), reverse=True)[:size]
    return sorted(most_recent)


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    gaps = draw(st.lists(st.integers(0, 12), min_size=1, max_size=60))  # zeros: several windows may end at one instant
    known = draw(st.lists(st.booleans(), min_size=len(gaps), max_size=len(gaps)))
    return np.cumsum(gaps), np.array(known), draw(st.integers(1, 40)), draw(st.integers(0, 5)), draw(st.integers(0, 6))


@given(streams())
@settings(max_examples=300, deadline=None)
def test_context_is_algorithm_1_and_every_label_was_realised(stream: tuple[np.ndarray, np.ndarray, int, int, int]) -> None:
    t, known, h, d, size = stream
    context = causal_context(t, known, h, d, size)
    assert context.windows(np.arange(len(t))).shape == (len(t), size)
    for target in range(len(t)):
        expected = algorithm_1(t.tolist(), known.tolist(), target, h, d, size)
        found = context.windows(np.array([target]))[0]
        assert found[found >= 0].tolist() == expected
        assert bool(context.valid[target]) == (len(expected) == size)
        assert all(known[j] and t[j] + d + h <= t[target] and j < target for j in found[found >= 0])


@given(streams(), st.integers(1, 200))
@settings(max_examples=200, deadline=None)
def test_context_with_a_maximum_age_is_algorithm_1_without_older_windows(
    stream: tuple[np.ndarray, np.ndarray, int, int, int], age: int
) -> None:
    t, known, h, d, size = stream
    context = causal_context(t, known, h, d, size, age)
    for target in range(len(t)):
        expected = algorithm_1(t.tolist(), known.tolist(), target, h, d, size, age)
        found = context.windows(np.array([target]))[0]
        assert found[found >= 0].tolist() == expected
        assert bool(context.valid[target]) == (len(expected) == size)


def test_no_context_reaches_across_missing_days() -> None:
    second, month = 10**9, 30 * 86_400 * 10**9
    t = np.concatenate([day * month + np.arange(50) * second for day in range(3)])
    known = np.ones(len(t), dtype=bool)
    aged = causal_context(t, known, 5 * second, 500_000, 15, 7200 * second)
    free = causal_context(t, known, 5 * second, 500_000, 15)
    targets = np.flatnonzero(aged.valid)
    assert (t[targets] // month == t[aged.windows(targets)].T // month).all()
    # The first windows of a day have no context of their own day yet; without a maximum age they would take last month's.
    assert aged.valid.reshape(3, 50).sum(axis=1).tolist() == [30, 30, 30]
    assert free.valid.reshape(3, 50).sum(axis=1).tolist() == [30, 50, 50]


def test_a_later_window_never_changes_an_earlier_context_with_a_maximum_age() -> None:
    t = np.cumsum(np.random.default_rng(1).integers(1, 10, 200))
    known = np.random.default_rng(2).random(200) < 0.8
    whole = causal_context(t, known, 7, 1, 4, 60)
    for end in (20, 77, 150):
        part = causal_context(t[:end], known[:end], 7, 1, 4, 60)
        assert np.array_equal(part.windows(np.arange(end)), whole.windows(np.arange(end)))
        assert np.array_equal(part.valid, whole.valid[:end])


def test_a_label_realised_exactly_at_the_target_time_is_context_and_one_nanosecond_later_is_not() -> None:
    t = np.array([0, 10, 5_000_500_000, 5_000_500_009], dtype=np.int64)
    context = causal_context(t, np.ones(4, dtype=bool), 5_000_000_000, 500_000, 1)
    assert context.windows(np.arange(4))[:, 0].tolist() == [-1, -1, 0, 0]


def test_times_out_of_order_and_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="time order"):
        causal_context(np.array([2, 1]), np.ones(2, dtype=bool), 1, 0, 1)
    with pytest.raises(ValueError, match="horizon"):
        causal_context(np.array([1, 2]), np.ones(2, dtype=bool), 0, 0, 1)


def test_two_million_windows_take_no_loop_and_memory_that_does_not_grow_with_the_context() -> None:
    t = np.cumsum(np.random.default_rng(0).integers(1, 10**10, 2_000_000))
    tracemalloc.start()
    context = causal_context(t, np.ones(len(t), dtype=bool), 5 * 10**9, 500_000, 15)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept / len(t) < 20  # bytes a window, not a window and context
    assert peak / len(t) < 60
    rows = np.arange(100, len(t), 100_003)
    assert (t[context.windows(rows)] + 5 * 10**9 + 500_000 <= t[rows][:, None]).all()
