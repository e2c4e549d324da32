"""The context index against a literal Algorithm 1, and the property that matters: nothing in it was unknown at the time."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uqlob_models.context import causal_context


def algorithm_1(t: list[int], has_label: list[bool], target: int, h: int, d: int, size: int) -> list[int]:
    """The paper's three lines, plus the demand that a context window has a label at all."""
    candidates = [j for j in range(target) if has_label[j] and t[j] + d + h <= t[target]]
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
