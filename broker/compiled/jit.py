"""The only importer of numba: `kernel` compiles a function once per machine and keeps it in NUMBA_CACHE_DIR.

Without it numba caches beside the source, or for the user, or it is done for it (kernel_place.py).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from numba import config, njit, types
from numba.core.cgutils import ir
from numba.extending import intrinsic

from logyard.broker.compiled import kernel_place

F = TypeVar("F", bound=Callable[..., Any])

_PLACES = (kernel_place.chosen, kernel_place.own)


def kernel(function: F) -> F:
    """Compile `function` on first use; it runs without the interpreter lock and without bounds checks, so a kernel has
    to check its own input."""
    for place in _PLACES:
        config.CACHE_DIR = place()
        if config.CACHE_DIR is None:
            continue
        with suppress(RuntimeError):  # numba may write nowhere there
            made = njit(cache=True, nogil=True)(function)
            if kept := getattr(made, "_cache", None):  # None where NUMBA_DISABLE_JIT is set
                _forgive(kept._cache_file)
            return cast(F, made)
    return cast(F, njit(nogil=True)(function))


def _forgive(file: Any) -> None:
    """Have numba compile again what it cannot load, and go on where it cannot save.

    It renames files that it has not synced: after a power cut they may be empty or full of zeros, which would otherwise
    fail in each process until somebody removes them.
    """
    load, save = file.load, file.save

    def loaded(key: Any) -> Any:
        try:
            return load(key)
        except Exception:  # what is unpickled may raise anything
            with suppress(OSError):
                file.flush()
            return None

    def saved(key: Any, data: Any) -> None:
        with suppress(OSError):
            save(key, data)

    file.load, file.save = loaded, saved


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
