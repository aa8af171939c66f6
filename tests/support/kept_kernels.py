"""Where the tests of a checkout keep compiled loops: one place for all of them, their brokers and Spark's workers.

Else each stage compiles them anew, beside the source, and each of Spark's workers in a directory of the user's.
"""

import os
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / ".numba_cache"


def keep() -> None:
    """Name the place to this process and all that it starts, unless somebody has named another."""
    KERNELS.mkdir(mode=0o700, exist_ok=True)
    os.environ.setdefault("NUMBA_CACHE_DIR", str(KERNELS))
