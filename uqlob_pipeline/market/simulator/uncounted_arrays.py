"""Arrays without reference counts, for loops that call small functions millions of times.

Numba counts a reference to every array argument at every call, with an atomic instruction; in the event loop this took
most of the time. A borrowed array is the same view with no owner noted, so nothing is counted. It is valid while the owner
lives, which is so inside the function that received the owner as an argument.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def borrowed(typing_context: Any, array: types.Array) -> Any:
    """The same array, its owner left out."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()

    return array(array), codegen
