"""The one importer of numba: `kernel` compiles a function once per machine and keeps it in NUMBA_CACHE_DIR.

Jobs set NUMBA_CACHE_DIR for their executors (session.py); without it numba caches beside the source, or for the user.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use, without the interpreter lock and without bounds checks: a kernel checks its
    own input."""
    return cast(F, njit(cache=True, nogil=True)(function))
