"""The rules for the brokers' memory and disks (facts §23), checked after every step."""

from dataclasses import dataclass, field
from typing import Any

from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import records
from tests.simulation.cluster import Cluster
from tests.simulation.contents import Batch, batches, misremembered, raw_batches
from tests.simulation.ledger import BrokenPromise
from tests.simulation.machine import Machine
from tests.simulation.zookeeper_rules import Born, ZooKeeperRules


@dataclass
class Exposed:
    """The records that were once below some high watermark; they never change.

    Records that were deleted (below `deleted`, the highest log start seen) before they were compared leave a gap.
    """

    by_base: dict[int, Batch] = field(default_factory=dict)
    end: int = 0
    deleted: int = 0

    def follows(self, batch: Batch) -> bool:
        """Whether a batch not seen before may come now: next in line, or with only deleted records before it."""
        return batch.base == self.end or batch.base <= self.deleted

    def add(self, batch: Batch) -> None:
        self.by_base[batch.base] = batch
        self.end = max(self.end, batch.last + 1)


@dataclass
class Checked:
    """How far one replica has been compared, and with how many cuts of its log."""

    offset: int = 0
    cuts: int = 0
    partition: Any = None
    leader_epoch: int = -1
    partition_epoch: int = -1


class BrokerRules:
    """Looks into the live brokers' memory and files."""

    def __init__(self, cluster: Cluster, zookeeper: ZooKeeperRules, *, may_lose: bool) -> None:
        self._cluster, self._zookeeper, self._may_lose = cluster, zookeeper, may_lose
        self._trace = cluster.trace
        self.exposed: dict[Born, Exposed] = {}
        self._checked: dict[tuple[int, int, Born], Checked] = {}
        self._seen: dict[tuple[int, int, TopicPartition], tuple[Any, ...]] = {}
        self._watermarks: dict[tuple[int, int, Born, int], int] = {}

    def check(self, *, whole: bool = False) -> None:
        """Compare what is new; with `whole` every replica from its start.

        A replica is skipped while nothing that the check reads has changed: it was compared up to its high watermark.
        """
        for machine in self._cluster.machines.values():
            components = machine.components
            if components is None:
                continue
            for tp, partition in components.replicas.hosted.partitions.items():
                log = partition.log
                if log is None or log.failure is not None:
                    continue
                now = _what_is_looked_at(partition, log)
                key = (machine.id, machine.boots, tp)
                if self._seen.get(key) == now and not whole:
                    continue
                self._seen[key] = now
                born = Born(log.topic_id, tp)
                checked = self._checked.setdefault((machine.id, machine.boots, born), Checked())
                self._check_epochs(machine, born, partition, checked)
                self._check_log(machine, born, log, checked, whole)

    def _check_epochs(self, machine: Machine, born: Born, partition: Any, checked: Checked) -> None:
        now = (partition.leader_epoch, partition.partition_epoch)
        if checked.partition is not partition:  # made again after it was deleted
            checked.partition, checked.leader_epoch, checked.partition_epoch = partition, -1, -1
        if now[0] < checked.leader_epoch or now[1] < checked.partition_epoch:
            before = (checked.leader_epoch, checked.partition_epoch)
            raise BrokenPromise(f"{born} on {machine}: (leader epoch, partition epoch) went from {before} to {now}")
        checked.leader_epoch, checked.partition_epoch = now
        if not partition.is_leader:
            return
        self._zookeeper.led(born, partition.leader_epoch, machine.id)
        key = (machine.id, machine.boots, born, partition.leader_epoch)
        high_watermark = partition.log.high_watermark
        if high_watermark < self._watermarks.get(key, 0):
            raise BrokenPromise(
                f"{born} on {machine}: the high watermark went from {self._watermarks[key]} to {high_watermark}"
            )
        self._watermarks[key] = high_watermark

    def _check_log(self, machine: Machine, born: Born, log: Any, checked: Checked, whole: bool) -> None:
        if log.high_watermark > log.log_end_offset:
            raise BrokenPromise(f"{born} on {machine}: high watermark {log.high_watermark} behind the log's end")
        bound = min(log.log_end_offset, log.high_watermark)
        if log.segments.cuts != checked.cuts:
            self._trace.count("log truncated", log.segments.cuts - checked.cuts)
            checked.cuts = log.segments.cuts
            checked.offset = 0
        if log.segments.cuts and (wrong := misremembered(machine, log)):
            raise BrokenPromise(f"{born} on {machine}: {wrong}")
        if whole:
            checked.offset = 0
        checked.offset = max(checked.offset, log.log_start_offset)
        if bound <= checked.offset or self._may_lose:
            return
        exposed = self.exposed.setdefault(born, Exposed())
        exposed.deleted = max(exposed.deleted, log.log_start_offset)
        for batch in batches(machine, log, checked.offset):
            if batch.last >= bound:
                if batch.base <= checked.offset:
                    # Records are there: a follower began, and has its watermark, where DeleteRecords cut their batch.
                    return
                break
            self._compare(machine, born, exposed, batch)
            checked.offset = batch.last + 1
        if checked.offset < bound:
            raise BrokenPromise(f"{born} on {machine}: nothing at {checked.offset}, the high watermark is {bound}")

    def _compare(self, machine: Machine, born: Born, exposed: Exposed, batch: Batch) -> None:
        theirs = exposed.by_base.get(batch.base)
        if theirs is None and exposed.follows(batch):
            exposed.add(batch)
        elif theirs != batch:
            raise BrokenPromise(f"{born} on {machine}: {batch} below the high watermark, exposed before was {theirs}")

    def ends(self, born: Born) -> dict[int, tuple[int, int]]:
        """(log end, high watermark) of the live replicas, by broker."""
        found = {}
        for machine in self._cluster.machines.values():
            partition = (
                machine.components.replicas.hosted.partitions.get(born.tp) if machine.components is not None else None
            )
            if partition is not None and partition.log is not None:
                found[machine.id] = (partition.log.log_end_offset, partition.log.high_watermark)
        return found

    def values(self, tp: TopicPartition) -> dict[int, bytes]:
        """The records that the partition's leader has in the end, by offset."""
        for machine in self._cluster.machines.values():
            partition = (
                machine.components.replicas.hosted.partitions.get(tp) if machine.components is not None else None
            )
            if partition is not None and partition.is_leader and partition.log is not None:
                pieces = raw_batches(machine, partition.log)
                return {r.offset: bytes(r.value or b"") for data in pieces for r in records(data)}
        return {}


def _what_is_looked_at(partition: Any, log: Any) -> tuple[Any, ...]:
    """Everything `BrokerRules.check` depends on; of the bytes, those below the high watermark."""
    return (
        partition,
        log,
        log.topic_id,
        partition.is_leader,
        partition.leader_epoch,
        partition.partition_epoch,
        log.high_watermark,
        log.log_end_offset,
        log.log_start_offset,
        log.segments.cuts,
    )
