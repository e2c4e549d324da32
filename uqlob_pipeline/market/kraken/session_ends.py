"""Recognises the messages with which the sessions so far ended, in a recording that overlaps them.

Events before that end are duplicates. At the very end they are duplicates where the message has the content of one that was
verified there: sources in microseconds have further messages of the same time.
"""

import numpy as np

from uqlob_pipeline.market.kraken.njit_in_place import njit_in_place, njit_inline
from uqlob_pipeline.market.kraken.replay_state import MAX_DIGESTS, Digest, Run, SideOrders, State


@njit_inline
def digest(bids: SideOrders, asks: SideOrders, m: int) -> int:
    """A number for the content of a message."""
    mixed = np.int64(0)
    for side in (bids, asks):
        mixed = mixed * np.int64(7_046_029_254_386_353_131) + np.int64(1)
        for i in range(side.start[m], side.start[m + 1]):
            order = side.key[i] * np.int64(2_685_821_657_736_338_717) + side.ticks[i] * np.int64(6_364_136_223_846_793_005)
            order += side.lots[i] * np.int64(1_442_695_040_888_963_407) + np.int64(side.event[i])
            mixed = (mixed ^ (mixed >> np.int64(29))) * np.int64(3_935_559_000_370_003_845) + order
    return int(mixed)


@njit_inline
def remember(run: Run, message: int, ts: int) -> None:
    """Note a message whose events were kept. Only those of the latest time are held."""
    state = run.state
    if ts != state[State.RECENT_TS]:
        state[State.RECENT_TS], state[State.RECENT] = ts, 0
    if state[State.RECENT] < MAX_DIGESTS:
        run.digests[Digest.RECENT, state[State.RECENT]] = message
        state[State.RECENT] += 1


@njit_inline
def confirm(run: Run) -> None:
    """The messages so far are verified."""
    state = run.state
    for i in range(state[State.RECENT]):
        run.digests[Digest.VERIFIED, i] = run.digests[Digest.RECENT, i]
    state[State.VERIFIED] = state[State.RECENT]


@njit_in_place
def begin(run: Run) -> None:
    """Begin a session: the time covered by earlier sessions ends at their last verified message."""
    state, digests = run.state, run.digests
    if state[State.VERIFIED_TS] > state[State.NOT_BEFORE]:
        state[State.NOT_BEFORE], state[State.LAST] = state[State.VERIFIED_TS], 0
    if state[State.VERIFIED_TS] == state[State.NOT_BEFORE]:
        for i in range(min(state[State.VERIFIED], MAX_DIGESTS - state[State.LAST])):
            digests[Digest.LAST, state[State.LAST]] = digests[Digest.VERIFIED, i]
            state[State.LAST] += 1
    for i in range(state[State.LAST]):
        digests[Digest.OPEN, i] = digests[Digest.LAST, i]
    state[State.OPEN] = state[State.LAST]
    state[State.RECENT] = state[State.VERIFIED] = 0
    state[State.RECENT_TS] = -1


@njit_inline
def is_repeated(run: Run, bids: SideOrders, asks: SideOrders, m: int, ts: int) -> bool:
    """Whether the sessions so far have the message already. Each of their last messages explains one."""
    state, digests = run.state, run.digests
    if ts != state[State.NOT_BEFORE]:
        return ts < state[State.NOT_BEFORE]
    message = digest(bids, asks, m)
    for i in range(state[State.OPEN]):
        if digests[Digest.OPEN, i] == message:
            state[State.OPEN] -= 1
            digests[Digest.OPEN, i] = digests[Digest.OPEN, state[State.OPEN]]
            return True
    return False
