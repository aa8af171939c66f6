"""The only importer of numba: `kernel` compiles a function once per machine and keeps it in NUMBA_CACHE_DIR.

Jobs set NUMBA_CACHE_DIR for their executors (session.py); without it numba caches beside the source, or for the user.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core.cgutils import ir
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use; it runs without the interpreter lock and without bounds checks, so a kernel has
    to check its own input."""
    return cast(F, njit(cache=True, nogil=True)(function))


def instructions(function: Callable[..., Any]) -> Any:
    """Return a function for kernels, made from one that emits LLVM instructions."""
    return intrinsic(function)


@instructions
def load_word(_context: Any, buffer: Any, at: Any) -> Any:
    """Return buffer[at : at + 8] (uint8, contiguous) as a uint64 in the processor's byte order; `at` is not checked.

    Reading it byte by byte costs three times as much as hashing it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(buffer, types.int64), generate


@instructions
def prefetch_row(_context: Any, matrix: Any, row: Any) -> Any:
    """Prefetch the start of matrix[row] (contiguous) for a write, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        row_bytes = builder.extract_value(array.strides, 0)
        start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        place = builder.gep(start, [builder.mul(arguments[1], row_bytes)])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        for_write, keep, data = 1, 3, 1
        builder.call(fetch, [place, *(ir.Constant(number, n) for n in (for_write, keep, data))])
        return context.get_dummy_value()

    return types.void(matrix, types.int64), generate
