"""Which trade prints explain a removal from the book. A print is claimed once.

Claims since the last verified message are undone when a checksum fails: the rows that made them are taken back, and another
recording of the same time may claim the prints again. Rows of a time that an earlier session covers claim nothing.
"""

from uqlob_pipeline.market.kraken.book import NONE
from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline
from uqlob_pipeline.market.kraken.replay_state import Run, State


@njit_inline
def _first_print(run: Run, ts: int) -> int:
    """The first print that is not too old to explain an event of this time."""
    state, print_ts = run.state, run.prints.ts
    while state[State.FIRST_PRINT] < len(print_ts) and print_ts[state[State.FIRST_PRINT]] < ts - run.rules.print_before_ns:
        state[State.FIRST_PRINT] += 1
    return state[State.FIRST_PRINT]


@njit_inline
def _claim(run: Run, i: int, lots: int) -> None:
    state = run.state
    run.prints.left[i] -= lots
    if state[State.CLAIMED_FROM] == state[State.CLAIMED_TO]:
        state[State.CLAIMED_FROM], state[State.CLAIMED_TO] = i, i + 1
    else:
        state[State.CLAIMED_FROM] = min(state[State.CLAIMED_FROM], i)
        state[State.CLAIMED_TO] = max(state[State.CLAIMED_TO], i + 1)


@njit_inline
def is_execution(run: Run, side: int, ticks: int, removed: int, ts: int) -> bool:
    """Level 3: whether one print that is large enough, or several that sum to it, explain an order's removal; claims them."""
    if run.state[State.REPEATED]:
        return False
    prints, first = run.prints, _first_print(run, ts)
    i, found, last = first, 0, NONE
    while i < len(prints.ts) and prints.ts[i] <= ts + run.rules.print_after_ns:
        if prints.maker_side[i] == side and prints.ticks[i] == ticks:
            if prints.left[i] >= removed:
                _claim(run, i, removed)
                return True
            found += prints.left[i]
            if found == removed:
                last = i
        i += 1
    for i in range(first, last + 1):
        if prints.maker_side[i] == side and prints.ticks[i] == ticks:
            _claim(run, i, prints.left[i])
    return last != NONE


@njit_inline
def executed_lots(run: Run, side: int, ticks: int, removed: int, ts: int) -> int:
    """Level 2: how much of a level's reduction the prints at its price explain together; claims them, oldest first."""
    if run.state[State.REPEATED]:
        return 0
    prints, i, left = run.prints, _first_print(run, ts), removed
    while left > 0 and i < len(prints.ts) and prints.ts[i] <= ts + run.rules.print_after_ns:
        if prints.maker_side[i] == side and prints.ticks[i] == ticks:
            claimed = min(left, prints.left[i])
            _claim(run, i, claimed)
            left -= claimed
        i += 1
    return removed - left


@njit_in_place
def confirm_claims(run: Run) -> None:
    state, prints = run.state, run.prints
    for i in range(state[State.CLAIMED_FROM], state[State.CLAIMED_TO]):
        prints.verified_left[i] = prints.left[i]
    state[State.CLAIMED_FROM] = state[State.CLAIMED_TO] = 0
    state[State.VERIFIED_FIRST_PRINT] = state[State.FIRST_PRINT]


@njit_in_place
def undo_claims(run: Run) -> None:
    state, prints = run.state, run.prints
    for i in range(state[State.CLAIMED_FROM], state[State.CLAIMED_TO]):
        prints.left[i] = prints.verified_left[i]
    state[State.CLAIMED_FROM] = state[State.CLAIMED_TO] = 0
    state[State.FIRST_PRINT] = state[State.VERIFIED_FIRST_PRINT]
