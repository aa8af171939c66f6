"""What a log reports to the store that manages its files and checkpoints, and what the logs of a broker share."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from logyard.broker.log.disk.port import Disk, remove_if_there
from logyard.broker.log.guards import VerificationSwitch
from logyard.broker.log.segment.open_segments import OpenSegments

LogT = TypeVar("LogT", contravariant=True)


class LogListener(Protocol[LogT]):
    """Is told what happens to a log, a `PartitionLog`. All calls come from the log's own thread, except `damaged`."""

    def rolled(self, log: LogT) -> None:
        """A segment was sealed: it should be flushed soon."""
        ...

    def retired(self, log: LogT, paths: Sequence[str]) -> None:
        """These files are to be removed after file.delete.delay.ms."""
        ...

    def cutting(self, log: LogT, offset: int) -> None:
        """The log is about to be cut at `offset`, or to start over there: before you return, write the checkpoints
        that have more. If you raise DiskError, it is not cut; it may not be cut either if you do not."""
        ...

    def cut(self, log: LogT, offset: int) -> None:
        """The log was truncated and now ends at `offset`."""
        ...

    def damaged(self, log: LogT, what: str) -> None:
        """Records or producers' states were lost and the rest is served; this call may come from any thread."""
        ...


class LogHost(NamedTuple):
    """What the logs of one broker share. `validate_records` is logyard.validate.records.

    `verification` says whether transactions are verified with their coordinator; off without a broker around the log.
    """

    listener: LogListener[Any]
    open_segments: OpenSegments
    verification: VerificationSwitch
    validate_records: bool = False


def standalone_host(disk: Disk) -> LogHost:
    """Return the host for a log without a store, as tools and tests use it."""
    return LogHost(NoListener(disk), OpenSegments(), VerificationSwitch())


class NoListener:
    """The listener of a log without a store: retired files are removed at once, other events are ignored."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def rolled(self, log: Any) -> None: ...

    def retired(self, log: Any, paths: Sequence[str]) -> None:
        for path in paths:
            remove_if_there(self._disk, path)

    def cutting(self, log: Any, offset: int) -> None: ...

    def cut(self, log: Any, offset: int) -> None: ...

    def damaged(self, log: Any, what: str) -> None: ...
