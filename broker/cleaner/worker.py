"""The workers that clean: a child process, and for tests with a disk in memory one in the broker's own process.

It is a process and not a thread because cleaning keeps the interpreter busy, which would delay the event loop.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any, Protocol

from logyard.broker.cleaner import cleaning
from logyard.broker.errors import LogyardError
from logyard.broker.log.disk.port import Disk

Json = dict[str, Any]

# A lease names every segment and producer of a log.
LINE_BYTES_MAX = 256 << 20
# Key of a request: bytes per second, null for no limit.
RATE = "bytes_per_second"
# A line with only this key is no request: running work goes on at that rate.
NEW_RATE = "new_bytes_per_second"
ENDING_S = 5.0


class WorkerDied(LogyardError):
    """The cleaning process is gone: killed, or out of memory."""


class CleaningWorker(Protocol):
    """Cleans one lease at a time."""

    async def clean(self, request: Json) -> Json:
        """Return what `cleaning.answer` returns for this request; raises WorkerDied. Cancelling it ends the process."""
        ...

    def pace(self, bytes_per_second: float) -> None:
        """Read and write at most at this rate from now on, in running work too. Without a call there is no limit."""
        ...

    async def end(self) -> None:
        """Release what an idle worker holds; the next `clean` acquires it again."""
        ...


class ChildProcess:
    """A child process, started when there is something to clean."""

    def __init__(self) -> None:
        self._process: Process | None = None
        # Kept here, because it may change while a lease is taken or the child is starting.
        self._rate: float | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return None if self._process is None else self._process.pid

    async def clean(self, request: Json) -> Json:
        try:
            return await self._ask(request)
        except BaseException:
            await self._kill()
            raise

    async def _ask(self, request: Json) -> Json:
        if self._process is None:
            # The child writes to the broker's stderr, so that its last messages are in the broker's log.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "logyard.broker.cleaner.child", stdin=PIPE, stdout=PIPE, limit=LINE_BYTES_MAX
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({**request, RATE: self._rate}).encode() + b"\n")
            await stdin.drain()
            line = await stdout.readline()
        except ConnectionError:
            line = b""
        if not line.endswith(b"\n"):
            raise WorkerDied(f"the cleaner's process ended during its work (pid {self._process.pid})")
        answer: Json = json.loads(line)
        return answer

    def pace(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        stdin = None if self._process is None else self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(json.dumps({NEW_RATE: bytes_per_second}).encode() + b"\n")

    async def end(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await process.wait()
        await self._kill()

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await asyncio.shield(process.wait())


class InProcess:
    """Cleans in the calling process."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def clean(self, request: Json) -> Json:
        copied: Json = json.loads(json.dumps(request))
        answer: Json = json.loads(json.dumps(cleaning.answer(copied, self._disk, cleaning.unthrottled)))
        return answer

    def pace(self, bytes_per_second: float) -> None: ...

    async def end(self) -> None: ...
