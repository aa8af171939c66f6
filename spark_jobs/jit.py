"""The one importer of numba: `kernel` compiles a function once per machine and keeps it in NUMBA_CACHE_DIR.

Jobs set NUMBA_CACHE_DIR for their executors (session.py); without it numba caches beside the source, or for the user.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use, without the interpreter lock and without bounds checks: a kernel checks its
    own input."""
    return cast(F, njit(cache=True, nogil=True)(function))


@intrinsic
def load_word(_context: Any, buffer: Any, at: Any) -> Any:
    """Return buffer[at : at + 8] (uint8, contiguous) as the processor reads a uint64 there; nothing checks `at`.

    Byte by byte the same costs three times as much as hashing it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(buffer, types.int64), generate
