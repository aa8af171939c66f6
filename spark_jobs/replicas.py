"""One replica of a partition as a job sees it: from a lease, or from a directory of a stopped broker (or of Apache
Kafka)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.errors import CorruptData
from logyard.broker.log import checkpoints, layout
from logyard.broker.log.index import decode_aborted
from logyard.broker.model import TopicPartition, topic_id_text
from logyard.spark_jobs.leases import Lease
from logyard.spark_jobs.segments import SegmentFile, of_directory, of_lease

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica at one moment. Offsets are UNKNOWN (-1) where a directory does not tell; `policy` None likewise."""

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
    lease: Lease | None = None

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def compacted(self) -> bool:
        return self.policy is not None and "compact" in self.policy


def of_leased(lease: Lease) -> Replica:
    """Return the replica that a lease describes; raises CorruptData where the answer lacks something."""
    d = lease.details
    try:
        return Replica(
            topic=lease.topic,
            partition=lease.partition,
            broker_id=lease.broker.broker_id,
            directory=str(d["directory"]),
            is_leader=lease.is_leader,
            leader_epoch=lease.leader_epoch,
            log_start_offset=int(d["log_start_offset"]),
            log_end_offset=int(d["log_end_offset"]),
            high_watermark=lease.high_watermark,
            last_stable_offset=int(d["last_stable_offset"]),
            clean_offset=int(d["clean_offset"]),
            now_ms=int(d["now_ms"]),
            policy=str(d["config"]["cleanup.policy"]),
            topic_id=d.get("topic_id"),
            cluster_id=d.get("cluster_id"),
            leader_epochs=tuple((int(e), int(o)) for e, o in d["leader_epochs"]),
            aborted=tuple(
                AbortedTransaction(
                    int(a["producer_id"]), int(a["first_offset"]), int(a["last_offset"]), int(a["last_stable_offset"])
                )
                for a in d["aborted_transactions"]
            ),
            segments=tuple(of_lease(lease)),
            config=dict(d["config"]),
            lease=lease,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"lease of broker {lease.broker.broker_id}: {error!r}") from error


def of_partition_directory(directory: str, broker_id: int = UNKNOWN, policy: str | None = None) -> Replica:
    """Return the replica that lies in `T-P`; checkpoints are read from the directory above. Raises CorruptData."""
    named = layout.parse_directory_name(os.path.basename(os.path.abspath(directory)))
    if named is None or named.kind is not layout.DirectoryKind.LIVE:
        raise CorruptData(f"{directory}: its name is not TOPIC-PARTITION")
    tp = named.partition
    segments = tuple(of_directory(directory, broker_id))
    above = os.path.dirname(os.path.abspath(directory))
    first = segments[0].base_offset if segments else 0
    start = _offset(above, layout.LOG_STARTS, tp)
    metadata = _read(os.path.join(directory, layout.PARTITION_METADATA))
    epochs = _read(os.path.join(directory, layout.LEADER_EPOCHS))
    return Replica(
        topic=tp.topic,
        partition=tp.partition,
        broker_id=broker_id,
        directory=os.path.abspath(directory),
        is_leader=False,
        leader_epoch=UNKNOWN,
        log_start_offset=max(start, first),
        log_end_offset=UNKNOWN,
        high_watermark=_offset(above, layout.HIGH_WATERMARKS, tp),
        last_stable_offset=UNKNOWN,
        clean_offset=max(_offset(above, layout.CLEANER_OFFSETS, tp), first),
        now_ms=UNKNOWN,
        policy=policy,
        topic_id=None if metadata is None else topic_id_text(checkpoints.decode_partition_metadata(metadata)),
        cluster_id=_cluster_id(above),
        leader_epochs=()
        if epochs is None
        else tuple((e.epoch, e.start_offset) for e in checkpoints.decode_epochs(epochs)),
        aborted=tuple(_aborted(segments)),
        segments=segments,
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


def _aborted(segments: Sequence[SegmentFile]) -> Iterator[AbortedTransaction]:
    for segment in segments:
        path = os.path.join(segment.directory, layout.file_name(segment.base_offset, layout.TXN_INDEX))
        for entry in decode_aborted(_read(path) or b""):
            yield AbortedTransaction(*entry)


def _offset(directory: str, name: str, tp: TopicPartition) -> int:
    data = _read(os.path.join(directory, name))
    return UNKNOWN if data is None else checkpoints.decode_offsets(data).get(tp, UNKNOWN)


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
