"""The only importer of numba: `kernel` compiles a function once per machine and keeps it in NUMBA_CACHE_DIR.

Without it numba caches beside the source, or for the user, or it is done for it (kernel_place.py).

numba is imported at the first call of a kernel: the driver of a job imports the modules of the loops, and calls none.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from logyard.broker.compiled import kernel_place
from logyard.broker.late_import import imported_when_used

with imported_when_used("numba"):
    import numba

F = TypeVar("F", bound=Callable[..., Any])

_PLACES = (kernel_place.chosen, kernel_place.own)


def load() -> None:
    """Import numba now; raises whatever that raises."""
    assert numba.njit


class Deferred:
    """What numba makes of a function, made when it is called, or compiled into another."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        self._function, self._make = function, make
        functools.update_wrapper(self, function)

    @functools.cached_property
    def made(self) -> Any:
        """The function as numba has it."""
        return self._make(self._function)

    def __call__(self, *values: Any) -> Any:
        return self.made(*values)

    @property
    def _numba_type_(self) -> Any:
        """The type of what a kernel names: numba asks for it when it compiles the kernel."""
        known = numba.core.registry.cpu_target.typing_context
        made = self.made
        known.refresh()  # it may have been made now, while numba compiles
        return known.resolve_value_type(made)


def kernel(function: F) -> F:
    """Compile `function` on first use; it runs without the interpreter lock and without bounds checks, so a kernel has
    to check its own input."""
    return cast(F, Deferred(function, _compiled))


def _compiled(function: Callable[..., Any]) -> Any:
    for place in _PLACES:
        numba.config.CACHE_DIR = place()
        if numba.config.CACHE_DIR is None:
            continue
        with suppress(RuntimeError):  # numba may write nowhere there
            made = numba.njit(cache=True, nogil=True)(function)
            if kept := getattr(made, "_cache", None):  # None where NUMBA_DISABLE_JIT is set
                _forgive(kept._cache_file)
            return made
    return numba.njit(nogil=True)(function)


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


def compile_for(function: Any, *values: Any) -> None:
    """Compile a kernel for values of these types, and keep what is made."""
    function.made.compile(tuple(numba.typeof(value) for value in values))


def load_kept(function: Any, *values: Any) -> bool:
    """Load a kernel for values of these types, as another process has kept it; False if none has. Nothing is compiled:
    that would hold the interpreter for seconds."""
    kernel = function.made
    if kernel.stats.cache_path is None:
        return False
    found = kernel._cache.load_overload(tuple(numba.typeof(value) for value in values), kernel.targetctx)
    if found is None:
        return False
    kernel.add_overload(found)
    return True


def instructions(function: Callable[..., Any]) -> Any:
    """Return a function for kernels, made from one that emits LLVM instructions."""
    return Deferred(function, lambda one: numba.extending.intrinsic(one))


@instructions
def load_word(_context: Any, buffer: Any, at: Any) -> Any:
    """Return buffer[at : at + 8] (uint8, contiguous) as a uint64 in the processor's byte order; `at` is not checked.

    Reading it byte by byte costs three times as much as hashing it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ir = numba.core.cgutils.ir
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return numba.types.uint64(buffer, numba.types.int64), generate


@instructions
def copy_bytes(_context: Any, target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy source[at : at + size] to target[to : to + size] (uint8, contiguous, not the same); nothing is checked.

    A slice assigned to a slice costs 15 ns more: numba makes two arrays for it, and asks whether they overlap.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, (into, to_place, data, from_place, count) = signature.args, arguments
        begin = builder.gep(context.make_array(kinds[0])(context, builder, into).data, [to_place])
        read = builder.gep(context.make_array(kinds[2])(context, builder, data).data, [from_place])
        numba.core.cgutils.raw_memcpy(builder, begin, read, count, 1)
        return context.get_dummy_value()

    whole = numba.types.int64
    return numba.types.void(target, whole, source, whole, whole), generate


@instructions
def prefetch_row(_context: Any, matrix: Any, row: Any) -> Any:
    """Prefetch the start of matrix[row] (contiguous) for a write, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ir = numba.core.cgutils.ir
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

    return numba.types.void(matrix, numba.types.int64), generate
