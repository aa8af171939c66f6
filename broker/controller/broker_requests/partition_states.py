"""The partitions of LeaderAndIsr, UpdateMetadata and StopReplica as arrays that write themselves, and those of an
answer: there may be very many.

Rule 1: they are encoded once, ahead in portions (`write_ahead`) or where the request is encoded.
Rule 2: nothing of an array is used before all of it is encoded; where that ends early it begins anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from logyard.broker.controller.broker_requests.batch import (
    STOP_REPLICA_WITH_FLAGS,
    LeaderAndIsrPartition,
    MetadataPartition,
    StoppedPartition,
)
from logyard.broker.errors import ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.protocol import codec
from logyard.broker.protocol.writers import Encoded, Prepared, StructWriter

# The values of a partition's struct, as the arrays below give them.
_VALUES_OF_BOTH = ("topic_name", "partition_index", "controller_epoch", "leader", "leader_epoch", "isr")
LEADER_AND_ISR_VALUES = (
    *_VALUES_OF_BOTH,
    "partition_epoch",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "is_new",
    "leader_recovery_state",
)
METADATA_VALUES = (*_VALUES_OF_BOTH, "zk_version", "replicas", "offline_replicas")

_TOPIC_VALUES = ("topic_name", "topic_id", "partition_states")

STOP_REPLICA, GROUPED_STOP_REPLICA = 5, 1

Known = dict[int, tuple[LeaderAndIsrPartition, bytes]]
"""The encoded entries of a batch by identity, with the entry itself so that its id is not reused."""

One = TypeVar("One", LeaderAndIsrPartition, MetadataPartition, StoppedPartition)


class Writers(NamedTuple):
    """What writes a partition's struct and a topic's; no `topic` where partitions are one list."""

    partition: StructWriter
    topic: StructWriter | None


def writers(api_key: int, version: int, values: tuple[str, ...], *, grouped: bool) -> Writers:
    """Return the writers of a version; a partition's takes these values."""
    if not grouped:
        path: tuple[str, ...] = ("ungrouped_partition_states",)
        return Writers(codec.struct_writer_of(api_key, "Request", version, path, values), None)
    path = ("topic_states", "partition_states")
    return Writers(
        codec.struct_writer_of(api_key, "Request", version, path, values),
        codec.struct_writer_of(api_key, "Request", version, path[:1], _TOPIC_VALUES),
    )


def stop_writers(version: int) -> Writers:
    """Return the writers of StopReplica in a version, for StoppedPartitions from version 3 on, else StoppedNumbers."""

    def writer(path: tuple[str, ...], *values: str) -> StructWriter:
        return codec.struct_writer_of(STOP_REPLICA, "Request", version, path, values)

    if version >= STOP_REPLICA_WITH_FLAGS:
        flagged = writer(("topic_states", "partition_states"), "partition_index", "leader_epoch", "delete_partition")
        return Writers(flagged, writer(("topic_states",), "topic_name", "partition_states"))
    if version >= GROUPED_STOP_REPLICA:
        topic = writer(("topics",), "name", "partition_indexes")
        return Writers(topic, topic)  # its partitions are no structs
    return Writers(writer(("ungrouped_partitions",), "topic_name", "partition_index"), None)


class PartitionStates(Prepared, Generic[One]):
    """A request's partitions, as one list or by topic; see the rules above."""

    __slots__ = ("_entries", "_length", "_topic_ids", "_write", "_write_topic", "_written")

    def __init__(self, entries: Sequence[One], topic_ids: Mapping[str, TopicId], write: Writers) -> None:
        self._entries: Sequence[One] = entries
        self._topic_ids = topic_ids
        self._write, self._write_topic = write
        self._length = len(entries)
        self._written: bytearray | None = None

    def __len__(self) -> int:
        self._complete()
        return self._length

    def append_to(self, out: bytearray) -> None:
        out += self._complete()

    def _complete(self) -> bytearray:
        for _ in self.write_ahead():
            pass
        assert self._written is not None
        return self._written

    def write_ahead(self) -> Iterator[int]:
        """Encode them, unless that was done. Yields what each portion cost: 1 for a partition or a topic."""
        if self._written is not None:
            return
        out = bytearray()
        if self._write_topic is None:
            yield from self._append_in_portions(self._entries, out)
        else:
            by_topic: dict[str, list[One]] = {}
            yield from self._group(by_topic)
            self._length = len(by_topic)
            yield from self._append_topics(by_topic, out)
        self._written, self._entries = out, ()

    def _group(self, by_topic: dict[str, list[One]]) -> Iterator[int]:
        for start in range(0, len(self._entries), AT_ONCE):
            portion = self._entries[start : start + AT_ONCE]
            for entry in portion:
                topic = entry.tp.topic
                if topic in by_topic:
                    by_topic[topic].append(entry)
                else:
                    by_topic[topic] = [entry]
            yield len(portion)

    def _append_topics(self, by_topic: dict[str, list[One]], out: bytearray) -> Iterator[int]:
        encoded = Encoded()
        for name in list(by_topic):
            entries = by_topic.pop(name)  # so that they are let go of in portions, too
            encoded.length, encoded.data = len(entries), bytearray()
            yield from self._append_in_portions(entries, encoded.data)
            self._append_topic(out, name, encoded)
            yield 1

    def _append_topic(self, out: bytearray, name: str, partitions: Encoded) -> None:
        assert self._write_topic is not None
        self._write_topic(out, name, self._topic_ids.get(name, ZERO_TOPIC_ID), partitions)

    def _append_in_portions(self, entries: Sequence[One], out: bytearray) -> Iterator[int]:
        for start in range(0, len(entries), AT_ONCE):
            portion = entries[start : start + AT_ONCE]
            self._append(portion, out)
            yield len(portion)

    def _append(self, entries: Sequence[One], out: bytearray) -> None:
        raise NotImplementedError


class LeaderAndIsrPartitions(PartitionStates[LeaderAndIsrPartition]):
    """Entries of one request; those that other requests of the batch have too, which are `known`, are encoded once."""

    __slots__ = ("_known",)

    def __init__(
        self,
        entries: Sequence[LeaderAndIsrPartition],
        topic_ids: Mapping[str, TopicId],
        write: Writers,
        known: Known,
    ) -> None:
        super().__init__(entries, topic_ids, write)
        self._known = known

    def write_ahead(self) -> Iterator[int]:
        yield from super().write_ahead()
        self._known = {}

    def _append(self, entries: Sequence[LeaderAndIsrPartition], out: bytearray) -> None:
        write, known = self._write, self._known
        for entry in entries:
            found = known.get(id(entry))
            if found is not None:
                out += found[1]
                continue
            (topic, number), state, assignment, is_new = entry
            leader, leader_epoch, isr, controller_epoch, partition_epoch, recovering = state
            begin = len(out)
            write(
                out,
                topic,
                number,
                controller_epoch,
                leader,
                leader_epoch,
                isr,
                partition_epoch,
                assignment.replicas,
                assignment.adding,
                assignment.removing,
                is_new,
                recovering,
            )
            known[id(entry)] = (entry, bytes(out[begin:]))


class MetadataPartitions(PartitionStates[MetadataPartition]):
    """Entries that go to all brokers: one object for all of them."""

    __slots__ = ()

    def _append(self, entries: Sequence[MetadataPartition], out: bytearray) -> None:
        write = self._write
        for (topic, number), state, leader, replicas, offline in entries:
            _, leader_epoch, isr, controller_epoch, partition_epoch, _ = state
            write(out, topic, number, controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, offline)


class StoppedPartitions(PartitionStates[StoppedPartition]):
    """Replicas to stop, each with its leader epoch and whether to delete it: version 3 and later."""

    __slots__ = ()

    def __init__(self, entries: Sequence[StoppedPartition], write: Writers) -> None:
        super().__init__(entries, {}, write)

    def _append_topic(self, out: bytearray, name: str, partitions: Encoded) -> None:
        assert self._write_topic is not None
        self._write_topic(out, name, partitions)

    def _append(self, entries: Sequence[StoppedPartition], out: bytearray) -> None:
        write = self._write
        for (_, number), leader_epoch, delete in entries:
            write(out, number, leader_epoch, delete)


class StoppedNumbers(StoppedPartitions):
    """Replicas to stop, as a list of numbers for each topic, or with their topics' names: versions 1 and 2, and 0."""

    __slots__ = ()

    def _append_topics(self, by_topic: dict[str, list[StoppedPartition]], out: bytearray) -> Iterator[int]:
        assert self._write_topic is not None
        for name in list(by_topic):
            numbers = [entry.tp.partition for entry in by_topic.pop(name)]
            self._write_topic(out, name, numbers)
            yield len(numbers)

    def _append(self, entries: Sequence[StoppedPartition], out: bytearray) -> None:
        write = self._write
        for (topic, number), _, _ in entries:
            write(out, topic, number)


# Answers


class PartitionCodes:
    """`codes` has those that are translated: none before `translate`, which the answer's handler goes through.

    What is translated stays, should the handler have to begin again, and the decoded answer goes, in portions as well.
    """

    __slots__ = ("_by_id", "_by_name", "codes")

    def __init__(self, response: Any) -> None:
        self._by_name: list[Any] = getattr(response, "partition_errors", None) or []
        self._by_id: list[Any] = getattr(response, "topics", None) or []
        self.codes: dict[TopicPartition, ErrorCode] = {}

    def translate(self, names: Mapping[TopicId, str]) -> Iterator[int]:
        """Translate a portion at a time; yields what it cost: 1 for a partition or a topic.

        Versions 5+ answer by topic id. A topic without one cannot be told apart, and one that is not in `names` any
        more is gone: both are left out.
        """
        while self._by_name:
            portion = _last_of(self._by_name)
            for each in portion:
                self.codes[TopicPartition(each.topic_name, each.partition_index)] = ErrorCode(each.error_code)
            yield len(portion)
        while self._by_id:
            topic = self._by_id[-1]
            name = names.get(topic.topic_id)
            portion = _last_of(topic.partition_errors)
            if name is not None:
                for each in portion:
                    self.codes[TopicPartition(name, each.partition_index)] = ErrorCode(each.error_code)
            if not topic.partition_errors:
                self._by_id.pop()
            yield 1 + len(portion)


def _last_of(left: list[Any]) -> list[Any]:
    portion = left[-AT_ONCE:]
    del left[-AT_ONCE:]
    return portion
