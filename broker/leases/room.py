"""Room on the disk for parts: what was promised to parts that still arrive is not promised again.

A disk that is full takes its whole log directory offline, and jobs send the parts of many leases at once.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from logyard.broker.leases.book import LeaseError

# Left free on a file system.
SPARE_BYTES = 64 << 20


class Room:
    """The promises of one broker, by log directory. `usable(path)` asks how many bytes are free there."""

    def __init__(self, usable: Callable[[str], Awaitable[int]]) -> None:
        self._usable = usable
        self._promised: Counter[str] = Counter()

    async def want(self, directory: str, size: int) -> None:
        """Raise LeaseError(storage) if a partition's directory has no room for so many bytes more."""
        usable = await self._usable(directory)
        usable -= self._promised[_root(directory)]
        if usable < size + SPARE_BYTES:
            raise LeaseError(
                "storage", 507, f"{max(usable, 0)} bytes are free at {directory}, {size + SPARE_BYTES} are needed"
            )

    @asynccontextmanager
    async def promised(self, directory: str, size: int) -> AsyncIterator[Callable[[int], None]]:
        """Promise so many bytes; yields what is told of each piece that was written. Raises as `want`."""
        root, left = _root(directory), size

        def written(piece: int) -> None:
            nonlocal left
            taken = min(piece, left)
            left -= taken
            self._promised[root] -= taken

        await self.want(directory, size)
        self._promised[root] += size
        try:
            yield written
        finally:
            written(left)


def _root(directory: str) -> str:
    return directory.rpartition("/")[0]
