"""What a commit stores beside its replica: the decision, that it has begun, its answer.

A replica may be deleted, or moved to another log directory, while the disk is waited for: nothing is written into a
directory that is no longer its own, and what was swapped in before a move is stored again where the replica lies now.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from logyard.broker.errors import StorageError
from logyard.broker.leases import persistence
from logyard.broker.leases.leased_log import LeasedLog
from logyard.broker.leases.leases import LeasePorts
from logyard.broker.log import layout

Json = dict[str, Any]


class CommitRecords:
    """The records of this broker's commits. The methods `write_…` wait for the disk: call them in threads."""

    def __init__(self, ports: LeasePorts) -> None:
        self._ports = ports

    def is_here(self, leased: LeasedLog) -> bool:
        """Whether the leased log is still its replica's."""
        return self._ports.store.logs.get(leased.lease.tp) is leased.log

    def write_begun(self, leased: LeasedLog, record: Json, decision: bytes | None) -> None:
        """Store the decision and the record that a commit has begun."""
        self._require_here(leased)
        if decision is not None:
            self.write_decision(leased, decision)
        persistence.write_record(self._ports.disk, leased, **record)

    def write_decision(self, leased: LeasedLog, decision: bytes) -> None:
        """Store the decision."""
        persistence.write_decision(self._ports.disk, self._directory(leased), decision)

    def write_answer(self, leased: LeasedLog, result: Json, now_ms: int) -> None:
        """Store the answer of a commit that is done."""
        persistence.write_committed(self._ports.disk, self._directory(leased), leased.lease, result, now_ms)

    def _directory(self, leased: LeasedLog) -> str:
        self._require_here(leased)
        return f"{leased.log.directory}/{layout.LEASES}"

    def _require_here(self, leased: LeasedLog) -> None:
        """Raise FileNotFoundError if the log is no longer this replica's: another may be at its path by now.

        Called in the thread that writes there, which may have waited for a slow disk.
        """
        if not self.is_here(leased):
            raise FileNotFoundError(leased.log.directory)

    async def store(self, leased: LeasedLog, work: Callable[[], Awaitable[Any]]) -> None:
        """Do the work that stores something, again if a move has put the replica elsewhere meanwhile."""
        while True:
            begun_in = leased.log
            try:
                await work()
            except (StorageError, FileNotFoundError):
                if leased.log is begun_in:
                    raise
            if leased.log is begun_in:
                return
