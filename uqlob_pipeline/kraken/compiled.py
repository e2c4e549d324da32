"""How the book and its replay are compiled: machine code that works in place on the arrays it is given.

Such code allocates nothing and keeps nothing, so its arrays need no reference counts; numba would otherwise count one up and
down for every array of every call, atomically, which costs as much as the replay itself.
"""

from numba import njit

in_place = njit(cache=True, nogil=True, _nrt=False)
