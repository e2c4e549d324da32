"""A small counter-based random generator (splitmix64) whose whole state is one number, so that a day can be cut into chunks."""

import hashlib

import numpy as np
from numba import njit

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def seed_number(*parts: object) -> np.uint64:
    """64 bits that depend on every part, and are the same on every machine."""
    text = "|".join(str(part) for part in parts).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


@njit(cache=True, nogil=True)
def mix(value: np.uint64) -> np.uint64:
    """A bijection of 64 bits: distinct counters give distinct, random-looking numbers."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def uniform(rng: np.ndarray) -> float:
    """In (0, 1): never zero, so that its logarithm is finite."""
    rng[0] = rng[0] + _GAMMA
    return (float(mix(rng[0]) >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def exponential(rng: np.ndarray) -> float:
    return -np.log(uniform(rng))


@njit(cache=True, nogil=True)
def normal(rng: np.ndarray) -> float:
    while True:
        a = 2.0 * uniform(rng) - 1.0
        b = 2.0 * uniform(rng) - 1.0
        s = a * a + b * b
        if 0.0 < s < 1.0:
            return a * np.sqrt(-2.0 * np.log(s) / s)
