"""Loads the compiled loops over records into a broker that serves clients meanwhile."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE

import structlog

from logyard.broker import extras
from logyard.broker.event_loop import RunBlocking
from logyard.broker.records import compiled_look, downconvert

log = structlog.get_logger("logyard.broker")

# A child that takes longer is not waited for: the machine has no time for it.
COMPILING_S = 300.0


async def load(run_blocking: RunBlocking) -> None:
    """Have a child compile the loops, or find them compiled; then load them in a thread, and use them.

    Importing numba and the loops takes 0.8 s and 125 MB: a broker does it when it has met a large batch, or has much to
    convert. Whatever goes wrong is logged, and records are read in C and Python as before.
    """
    if not extras.is_installed("numba"):
        log.info("many records are read one by one in C: pip install 'logyard[cleaner]'")
        return
    problem = await _compile()
    if problem is None:
        problem = await run_blocking(_use)
    if problem is None:
        log.info("many records are read in compiled loops")
    else:
        log.warning("many records are read one by one in C", reason=problem)


async def _compile() -> str | None:
    """Return what went wrong, None if the loops are compiled."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "logyard.broker.compiled.prepared", stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    try:
        async with asyncio.timeout(COMPILING_S):
            _, said = await child.communicate()
    except TimeoutError:
        return f"they were not compiled within {COMPILING_S:.0f} s"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if not child.returncode:
        return None
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the process that compiles them ended with {child.returncode}"


def _use() -> str | None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own begins a thread for each core, for nothing here
    try:
        from logyard.broker.compiled import crc_kernel, old_conversion, record_look

        if not (record_look.is_kept() and old_conversion.is_kept()):
            return "there is no place for compiled code: set NUMBA_CACHE_DIR"
    except Exception as error:  # libraries that do not fit each other
        return f"{type(error).__name__}: {error}"
    if crc_kernel.IS_POSSIBLE:
        downconvert.use(old_conversion.Conversion)
    compiled_look.use(record_look.Look)
    return None
