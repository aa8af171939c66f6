"""One replica of a partition as a job sees it: from a lease, or from a directory of a stopped broker (or of Apache
Kafka)."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.errors import CorruptData
from logyard.broker.log import checkpoints, layout
from logyard.broker.log.producers import decode_snapshot
from logyard.broker.log.segment.index import decode_aborted
from logyard.broker.model import TopicPartition, topic_id_text
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.answers import Answer
from logyard.spark_jobs.leases.client import Lease
from logyard.spark_jobs.segments.files import SegmentFile, of_directory, of_lease

UNKNOWN = -1
COMPACT = "compact"  # the purpose of a lease
Decoded = TypeVar("Decoded")


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica at one moment. Values that a directory does not have are UNKNOWN (-1), `policy` None."""

    topic: str
    partition: int
    broker_id: int
    directory: str
    is_leader: bool
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    clean_offset: int
    now_ms: int
    policy: str | None
    topic_id: str | None
    cluster_id: str | None
    leader_epochs: tuple[tuple[int, int], ...]
    aborted: tuple[AbortedTransaction, ...]
    segments: tuple[SegmentFile, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    # Files of the directory that cannot be read, and why; the fields that they hold are unknown.
    damaged_files: tuple[tuple[str, str], ...] = ()
    lease: Lease | None = None

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def watermark_trouble(self) -> str:
        """Why the high watermark is unknown, "" if it is known."""
        if self.high_watermark >= 0:
            return ""
        why = next((text for path, text in self.damaged_files if path.endswith(layout.HIGH_WATERMARKS)), "")
        return f"its high watermark is not known ({layout.HIGH_WATERMARKS}: {why or 'it has no line'})"

    @property
    def compacted(self) -> bool:
        return self.policy is not None and "compact" in self.policy


def of_leased(lease: Lease) -> Replica:
    """Return the replica that a lease describes; raises LeaseError (`bad_answer`), naming the broker and the field.

    Afterwards every field of the lease's details that a job reads is of its type, or missing if it may be.
    """
    told = lease.answer
    config = told.inner("config")
    _check_details(lease, config)
    return Replica(
        topic=lease.topic,
        partition=lease.partition,
        broker_id=lease.broker.broker_id,
        directory=told.text("directory"),
        is_leader=lease.is_leader,
        leader_epoch=lease.leader_epoch,
        log_start_offset=told.number("log_start_offset"),
        log_end_offset=told.number("log_end_offset"),
        high_watermark=lease.high_watermark,
        last_stable_offset=told.number("last_stable_offset"),
        clean_offset=told.number("clean_offset"),
        now_ms=told.number("now_ms"),
        policy=config.text("cleanup.policy"),
        topic_id=told.text_or_none("topic_id"),
        cluster_id=told.text_or_none("cluster_id"),
        leader_epochs=tuple(told.pairs("leader_epochs")),
        aborted=tuple(
            AbortedTransaction(*map(a.number, ("producer_id", "first_offset", "last_offset", "last_stable_offset")))
            for a in told.inners("aborted_transactions")
        ),
        segments=tuple(of_lease(lease)),
        config=dict(config.fields),
        lease=lease,
    )


def _check_details(lease: Lease, config: Answer) -> None:
    """Raise LeaseError if a field is malformed that is read later: of a compaction's lease, or of any."""
    told = lease.answer
    for name in ("run_id", "links_dir", "parts_dir"):
        told.text(name, "")
    told.number("recovery_point", UNKNOWN)
    told.number("expires_at_ms", 0)
    if "isr" in told.fields or lease.purpose == COMPACT:
        told.numbers("isr")
    if "producers" in told.fields:
        for producer in told.inners("producers"):
            for name in ("producer_id", "last_offset", "producer_epoch"):
                producer.number(name)
    for name in ("segment.bytes", "segment.index.bytes"):
        config.number(name, 0)
    if lease.purpose == COMPACT:
        told.number("first_dirty_at_ms")
        config.number("delete.retention.ms")
        config.number("max.compaction.lag.ms")
        config.ratio("min.cleanable.dirty.ratio")


def of_partition_directory(directory: str, broker_id: int = UNKNOWN, policy: str | None = None) -> Replica:
    """Return the replica in a partition's directory (`T-P`); checkpoints are read from its parent directory. Raises
    CorruptData if the name is not that of a partition's directory."""
    named = layout.parse_directory_name(os.path.basename(os.path.abspath(directory)))
    if named is None or named.kind is not layout.DirectoryKind.LIVE:
        raise CorruptData(f"{directory}: its name is not TOPIC-PARTITION")
    tp = named.partition
    segments = tuple(of_directory(directory, broker_id))
    above = os.path.dirname(os.path.abspath(directory))
    first = segments[0].base_offset if segments else 0
    damaged: list[tuple[str, str]] = []

    def decoded(name: str, decode: Callable[[bytes], Decoded], home: str = directory) -> Decoded | None:
        path = os.path.join(os.path.abspath(home), name)
        try:
            data = _read(path)
            return None if data is None else decode(data)
        except CorruptData as error:
            damaged.append((path, str(error)))
            return None

    def offset(name: str) -> int:
        known = decoded(name, checkpoints.decode_offsets, above)
        return UNKNOWN if known is None else known.get(tp, UNKNOWN)

    start, clean_offset, high_watermark = map(
        offset, (layout.LOG_STARTS, layout.CLEANER_OFFSETS, layout.HIGH_WATERMARKS)
    )
    topic_id = decoded(layout.PARTITION_METADATA, checkpoints.decode_partition_metadata)
    epochs = decoded(layout.LEADER_EPOCHS, checkpoints.decode_epochs)
    for name in _loose_snapshots(directory, segments):
        decoded(name, decode_snapshot)
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        # The audit of the segment reports a damaged transaction index.
        with suppress(CorruptData):
            aborted += _aborted(segment)
    return Replica(
        topic=tp.topic,
        partition=tp.partition,
        broker_id=broker_id,
        directory=os.path.abspath(directory),
        is_leader=False,
        leader_epoch=UNKNOWN,
        log_start_offset=max(start, first),
        log_end_offset=UNKNOWN,
        high_watermark=high_watermark,
        last_stable_offset=UNKNOWN,
        clean_offset=max(clean_offset, first),
        now_ms=UNKNOWN,
        policy=policy,
        topic_id=None if topic_id is None else topic_id_text(topic_id),
        cluster_id=_cluster_id(above),
        leader_epochs=tuple((e.epoch, e.start_offset) for e in epochs or ()),
        aborted=tuple(aborted),
        segments=segments,
        damaged_files=tuple(damaged),
    )


def of_log_directory(
    directory: str, broker_id: int = UNKNOWN, topics: Sequence[str] = (), policy: str | None = None
) -> Iterator[Replica]:
    """Yield the replicas under a log directory (or the one replica, if it is a partition's directory)."""
    for path in sorted([directory, *(os.path.join(directory, n) for n in os.listdir(directory))]):
        named = layout.parse_directory_name(os.path.basename(os.path.abspath(path)))
        if named is None or named.kind is not layout.DirectoryKind.LIVE or not os.path.isdir(path):
            continue
        has_log = any(n.endswith(layout.LOG) for n in os.listdir(path))
        if has_log and (not topics or named.partition.topic in topics):
            yield of_partition_directory(path, broker_id, policy)


def check_topics(where: str, replicas: Sequence[Replica], topics: Sequence[str]) -> None:
    """Raise JobFailed if nothing was found, or nothing of a requested topic."""
    found = {r.topic for r in replicas}
    if not found:
        raise JobFailed(f"{where}: no partition directory was found")
    if missing := [topic for topic in topics if topic not in found]:
        raise JobFailed(f"{where}: no partition directory of topic {missing[0]} was found")


def _loose_snapshots(directory: str, segments: Sequence[SegmentFile]) -> Iterator[str]:
    """Yield the names of producer snapshots at offsets other than segments' bases: a clean shutdown leaves one at the
    log's end."""
    bases = {segment.base_offset for segment in segments}
    for name in sorted(os.listdir(directory)):
        found = layout.parse_file_name(name)
        if found is not None and found.kind == layout.SNAPSHOT and not found.suffix and found.offset not in bases:
            yield name


def _aborted(segment: SegmentFile) -> list[AbortedTransaction]:
    path = os.path.join(segment.directory, layout.file_name(segment.base_offset, layout.TXN_INDEX))
    return [AbortedTransaction(*entry) for entry in decode_aborted(_read(path) or b"")]


def _cluster_id(directory: str) -> str | None:
    data = _read(os.path.join(directory, layout.META_PROPERTIES)) or b""
    for line in data.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "cluster.id":
            return value.strip()
    return None


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
