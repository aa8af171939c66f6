"""The values that every package shares: partitions, their state and assignment, brokers, topic ids."""

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NO_LEADER = -1
LEADER_DURING_DELETE = -2
NO_EPOCH = -1

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics that only brokers write to; Metadata answers mark them as internal."""

TopicId = uuid.UUID
ZERO_TOPIC_ID = uuid.UUID(int=0)


def topic_id_text(topic_id: TopicId) -> str:
    """Return the 22-character URL-safe base64 form that Kafka writes in znodes and files."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def topic_id_from_text(text: str) -> TopicId:
    """Read what `topic_id_text` wrote; raises ValueError on anything but 22 base64url characters."""
    raw = base64.urlsafe_b64decode(text + "==")
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"topic id {text!r}: 22 base64url characters of a uuid are expected")
    return uuid.UUID(bytes=raw)


class TopicPartition(NamedTuple):
    """One partition of one topic; str() of it is also the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Folding:
    """Partitions as text for a log line, in their order; consecutive ones become one entry, `flights-0..299`.

    There are at most `entries_max` entries.
    """

    def __init__(self, entries_max: int) -> None:
        self._max = entries_max
        self._closed: list[str] = []
        self._topic, self._first, self._last = "", 0, -2

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Take some more."""
        if self.is_full():
            return
        topic, first, last = self._topic, self._first, self._last
        for tp in partitions:
            if tp.partition == last + 1 and tp.topic == topic:
                last += 1
                continue
            self._close(topic, first, last)
            topic, first = tp
            last = first
            if self.is_full():
                break
        self._topic, self._first, self._last = topic, first, last

    def is_full(self) -> bool:
        """Whether no more is taken."""
        return len(self._closed) == self._max

    def _close(self, topic: str, first: int, last: int) -> None:
        if last >= first:
            self._closed.append(f"{topic}-{first}" if first == last else f"{topic}-{first}..{last}")

    def entries(self) -> list[str]:
        """Return what was taken, as text."""
        if not self.is_full():
            self._close(self._topic, self._first, self._last)
            self._last = self._first - 1
        return self._closed


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a broker: listener name, security protocol (PLAINTEXT…), host, port."""

    listener: str
    protocol: str
    host: str
    port: int


class LevelRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker. `epoch` is the czxid of /brokers/ids/N (-1 when unknown).

    `features` are those that it supports, by name (KIP-584); only its registration tells them.
    """

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    http: str | None = None
    features: tuple[tuple[str, LevelRange], ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the address on that listener, None if the broker does not have it."""
        return next((e for e in self.endpoints if e.listener == listener), None)


class PartitionState(NamedTuple):
    """The content of the znode /brokers/topics/T/partitions/P/state; `partition_epoch` is its version (facts §1).

    A tuple, since a controller makes one for each partition: these are made faster, and hold no work for the garbage
    collector.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """The broker ids of a partition's replicas, and those that a running reassignment adds and removes (facts §6).

    Before the reassignment the replicas were `origin` (replicas - adding); after it they are `target` (replicas -
    removing).
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Sequence[int]) -> "Assignment":
        """Return the assignment that starts a move to `target` and replaces a running move."""
        origin, wanted = self.origin, frozenset(target)
        full = tuple(dict.fromkeys((*target, *origin)))
        return Assignment(
            replicas=full,
            adding=tuple(r for r in full if r not in origin),
            removing=tuple(r for r in full if r not in wanted),
        )


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The content of the znode /brokers/topics/T: topic id (None: written before 2.8) and all partitions' replicas."""

    partitions: Mapping[int, Assignment] = field(default_factory=dict)
    topic_id: TopicId | None = None
