"""Looks up the host names of settings, in a thread, every five minutes.

While a name cannot be resolved, it has no addresses: its setting has no effect, and the log says so.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog

from logyard.broker import tasks

AGAIN_S = 300.0
FAILED_AGAIN_S = 30.0

LookUp = Callable[[str], frozenset[str]]
Changed = Callable[[Mapping[str, frozenset[str]]], None]

log = structlog.get_logger("logyard.addresses")


def look_up(name: str) -> frozenset[str]:
    """Return the addresses of a host; waits for the resolver. Raises OSError or UnicodeError."""
    return frozenset(str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))


async def is_known(name: str) -> bool:
    """Whether a host of that name has an address now; it is asked in a thread, and may take half a minute."""
    try:
        return bool(await asyncio.get_running_loop().run_in_executor(None, look_up, name))
    except (OSError, UnicodeError):
        return False


class HostNames:
    """Calls `changed` with the addresses of the wanted names whenever they may have changed."""

    def __init__(self, changed: Changed, look_up: LookUp = look_up) -> None:
        self._changed = changed
        self._look_up = look_up
        self._names: dict[str, None] = {}
        self._known: dict[str, frozenset[str]] = {}
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def want(self, names: Iterable[str]) -> None:
        """Resolve these names from now on, and no others. Call it on the event loop."""
        self._names = dict.fromkeys(names)
        self._known = {name: found for name, found in self._known.items() if name in self._names}
        self._wanted.set()
        if self._names and self._task is None:
            self._task = tasks.keep("host names", self._run)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        # A separate thread: a resolver may take half a minute to fail.
        pool = ThreadPoolExecutor(1, thread_name_prefix="names")
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._wanted.clear()
                rest_s = AGAIN_S
                for name in list(self._names):
                    try:
                        found = await loop.run_in_executor(pool, self._look_up, name)
                    except (OSError, UnicodeError) as error:
                        log.warning(
                            "a host name cannot be resolved", name=name, error=str(error), again_in_s=FAILED_AGAIN_S
                        )
                        rest_s = FAILED_AGAIN_S
                        continue
                    if name in self._names:
                        self._known[name] = found
                self._changed(dict(self._known))
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._wanted.wait()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
