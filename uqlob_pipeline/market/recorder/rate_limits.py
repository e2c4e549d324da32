"""Rate limits: Kraken's subscription counter, and exponential back-off after failures."""

import asyncio
import random
import time


def subscription_cost(channel: str, depth: int | None) -> float:
    """What one symbol's subscription adds to the rate counter: level 3 costs 5, 25 or 100 by depth. Level 2 is counted alike."""
    if channel not in ("level3", "book") or depth is None or depth <= 10:
        return 5.0
    return 25.0 if depth <= 100 else 100.0


class RateLimiter:
    """A rate limiter: the counter may reach `budget` and falls by `budget` per second."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._spent, self._at = 0.0, time.monotonic()

    async def spend(self, cost: float) -> None:
        now = time.monotonic()
        self._spent = max(0.0, self._spent - (now - self._at) * self.budget)
        self._at = now
        self._spent += cost
        excess = self._spent - self.budget
        if excess > 0:
            await asyncio.sleep(excess / self.budget)


class BackOff:
    """Exponential back-off with jitter: waits double up to `longest`, each drawn between half of it and the whole."""

    def __init__(self, first: float, longest: float) -> None:
        self.first, self.longest = first, longest
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self) -> float:
        wait = min(self.longest, self.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return wait * random.uniform(0.5, 1.0)  # noqa: S311 (jitter)
