"""Loads the compiled look at records into a broker that serves clients meanwhile."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE

import structlog

from logyard.broker import extras
from logyard.broker.event_loop import RunBlocking
from logyard.broker.records import compiled_look

log = structlog.get_logger("logyard.broker")

# A child that takes longer is not waited for: the machine has no time for it.
COMPILING_S = 300.0


async def load(run_blocking: RunBlocking) -> None:
    """Have a child compile the loop, or find it compiled; then load it in a thread, and use it.

    Importing numba and the loop takes 0.8 s and 125 MB: a broker does it when it has met a large batch. Whatever goes
    wrong is logged, and records are read in C and Python as before.
    """
    if not extras.is_installed("numba"):
        log.info("large batches are read record by record in C: pip install 'logyard[cleaner]'")
        return
    problem = await _compile()
    if problem is None:
        problem = await run_blocking(_use)
    if problem is None:
        log.info("large batches are looked at in a compiled loop")
    else:
        log.warning("large batches are read record by record in C", reason=problem)


async def _compile() -> str | None:
    """Return what went wrong, None if the loop is compiled."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "logyard.broker.compiled.prepared", stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    try:
        async with asyncio.timeout(COMPILING_S):
            _, said = await child.communicate()
    except TimeoutError:
        return f"it was not compiled within {COMPILING_S:.0f} s"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if not child.returncode:
        return None
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the process that compiles it ended with {child.returncode}"


def _use() -> str | None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own begins a thread for each core, for nothing here
    try:
        from logyard.broker.compiled import record_look

        if not record_look.is_kept():
            return "there is no place for compiled code: set NUMBA_CACHE_DIR"
    except Exception as error:  # libraries that do not fit each other
        return f"{type(error).__name__}: {error}"
    compiled_look.use(record_look.Look)
    return None
