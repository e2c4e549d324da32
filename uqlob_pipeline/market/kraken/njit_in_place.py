"""The decorators of the compiled book and replay: functions that only read and write the arrays they are given.

They allocate nothing and keep no reference, so they need no reference counts. Numba would otherwise update an atomic count for
every array of every call, which costs as much as the replay itself.
"""

from functools import partial

from numba import njit

njit_in_place = partial(njit, cache=True, nogil=True, _nrt=False)
njit_inline = partial(njit_in_place, forceinline=True)  # small functions: passing tuples of arrays costs more than they do
