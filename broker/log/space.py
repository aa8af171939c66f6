"""Total and usable bytes of the log directories' file systems, asked in threads: nobody waits for a disk that hangs.

statvfs waits where a network file system or a dying disk does. So each directory has one question at most, which all
who ask share; and while that is late, nobody waits for it.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from logyard.broker import tasks
from logyard.broker.event_loop import RunBlocking
from logyard.broker.log.disk.port import Disk, DiskError

Space = tuple[int, int]
"""Total and usable bytes; UNKNOWN is (-1, -1)."""
UNKNOWN: Space = (-1, -1)
WAIT_S = 1.0
_LARGEST = 2**63 - 1  # as Kafka says it of file systems that are larger (KIP-827)


class DirectorySpace:
    """Asks `disk`, by `run`. A directory is in `late` while its question has not been answered for WAIT_S."""

    def __init__(self, disk: Disk, run: RunBlocking) -> None:
        self._disk, self._run = disk, run
        self._asked: dict[str, asyncio.Task[Space]] = {}
        self.late: set[str] = set()

    async def of(self, paths: Iterable[str]) -> dict[str, Space]:
        """Return each directory's bytes after WAIT_S at most; UNKNOWN where the disk failed or has not answered."""
        asked = {path: self._ask(path) for path in paths}
        awaited = [task for path, task in asked.items() if path not in self.late]
        if awaited:
            await asyncio.wait(awaited, timeout=WAIT_S)
        self.late.update(path for path, task in asked.items() if not task.done())
        # A question is cancelled where the broker stops; who still asks is not.
        return {
            path: task.result() if task.done() and not task.cancelled() else UNKNOWN for path, task in asked.items()
        }

    def _ask(self, path: str) -> "asyncio.Task[Space]":
        if path not in self._asked:
            self._asked[path] = tasks.spawn("log directory's space", self._find(path))
        return self._asked[path]

    async def _find(self, path: str) -> Space:
        try:
            total, usable = await self._run(partial(self._disk.space, path))
        except (DiskError, FileNotFoundError):
            return UNKNOWN  # its directory is going offline, or was removed
        finally:
            self.late.discard(path)
            self._asked.pop(path, None)
        return min(total, _LARGEST), min(usable, _LARGEST)
