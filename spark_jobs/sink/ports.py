"""What a write asks of Kafka; client.py does it with librdkafka, tests with a cluster in memory."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from logyard.spark_jobs.sink.rows import Rows


class Transactions(Protocol):
    """A producer with one transactional id. Every method raises CannotWrite, or Fenced if a later one has started."""

    def start(self) -> None:
        """Fence every earlier producer of the id: its open transaction is aborted, or its commit completed."""
        ...

    def begin(self) -> None: ...

    def send(self, rows: Rows) -> None:
        """Queue records; returns when all are queued, which bounds the memory. Sent is what `commit` returns for."""
        ...

    def commit(self, group: str, epoch: int, metadata: str) -> None:
        """Commit the records together with the group's offset, epoch + 1, and metadata."""
        ...

    def close(self) -> None:
        """Abort what is open, as far as that succeeds, and let go."""
        ...


class Kafka(Protocol):
    """One cluster; raises CannotWrite."""

    def transactions(self, transactional_id: str) -> Transactions: ...

    def check_topic(self, topic: str) -> int:
        """Return how many partitions a topic has; raises CannotWrite if it does not exist or may not be seen."""
        ...

    def committed(self, groups: Sequence[str]) -> Mapping[str, str | None]:
        """Return each group's committed metadata (None: no offset). A group on which a transaction is still open after
        a few seconds is left out."""
        ...

    def groups(self, prefix: str) -> list[str]:
        """Return the groups whose names begin so."""
        ...
