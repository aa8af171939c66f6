"""The workers that clean: a child process, and for tests with a disk in memory one in the broker's own process.

It is a process and not a thread because cleaning keeps the interpreter busy, which would delay the event loop.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any, Protocol

from logyard.broker.cleaner import cleaning, plain_passes
from logyard.broker.cleaner.passes import Engine
from logyard.broker.errors import LogyardError
from logyard.broker.leases.json_pieces import json_pieces
from logyard.broker.log.disk.port import Disk

Json = dict[str, Any]

# A lease names every segment and producer of a log.
LINE_BYTES_MAX = 256 << 20
# Key of a request: bytes per second, null for no limit.
RATE = "bytes_per_second"
# A line with only this key is no request: running work goes on at that rate.
NEW_RATE = "new_bytes_per_second"
# Key of a request: true for plain Python.
PLAIN = "plain"
ENDING_S = 5.0
DEADLY_LOGS_MAX = 1000


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
        # The logs in whose work a child has died, which may be the doing of compiled code: they are cleaned in plain
        # Python from then on.
        self._deadly: dict[tuple[str, int], None] = {}

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return self._process.pid if self._process is not None and self._lives() else None

    def _lives(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def clean(self, request: Json) -> Json:
        try:
            return await self._ask(request)
        except BaseException:
            await self._kill()
            raise

    async def _ask(self, request: Json) -> Json:
        if not self._lives():  # none was started, or it was killed while it was idle
            # The child writes to the broker's stderr, so that its last messages are in the broker's log.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "logyard.broker.cleaner.child", stdin=PIPE, stdout=PIPE, limit=LINE_BYTES_MAX
            )
        assert self._process is not None
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        lease = request.get("lease", {})
        log = lease.get("topic", ""), lease.get("partition", -1)
        encoded = await asyncio.to_thread(json_pieces, lease)
        rest = {key: value for key, value in request.items() if key != "lease"}
        head = json.dumps({**rest, RATE: self._rate, PLAIN: log in self._deadly})
        try:
            stdin.writelines([head[:-1].encode(), b', "lease": ', *encoded, b"}\n"])
            await stdin.drain()
            line = await stdout.readline()
        except ConnectionError:
            line = b""
        if not line.endswith(b"\n"):
            self._deadly[log] = None
            if len(self._deadly) > DEADLY_LOGS_MAX:
                del self._deadly[next(iter(self._deadly))]
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

    def __init__(self, disk: Disk, engine: Engine = plain_passes.ENGINE) -> None:
        self._disk, self._engine = disk, engine

    async def clean(self, request: Json) -> Json:
        copied: Json = json.loads(json.dumps(request))
        answer: Json = json.loads(json.dumps(cleaning.answer(copied, self._disk, cleaning.unthrottled, self._engine)))
        return answer

    def pace(self, bytes_per_second: float) -> None: ...

    async def end(self) -> None: ...
