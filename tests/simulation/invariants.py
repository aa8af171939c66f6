"""The rules of facts §23, seen from outside: ZooKeeper's at every write, the brokers' after every step."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from logyard.broker.model import Assignment, PartitionState, TopicId, TopicPartition
from logyard.broker.records.batch import records
from logyard.broker.znodes import configs, partition_state, topics
from logyard.broker.znodes import controller as controller_znode
from logyard.broker.znodes.ops import OpResult, SetData, ZkOp
from tests.simulation.cluster import Cluster
from tests.simulation.contents import Batch, batches, misremembered, raw_batches
from tests.simulation.ledger import BrokenPromise
from tests.simulation.machine import Machine

TOPICS = topics.PATH + "/"

_decoded_topic = lru_cache(4096)(topics.decode)
_decoded = lru_cache(4096)(partition_state.decode)


class Born(NamedTuple):
    """One partition of one life of a topic: names come back, these do not."""

    topic_id: TopicId | None
    tp: TopicPartition

    def __str__(self) -> str:
        return str(self.tp)


class ZooKeeperRules:
    """Hears of every write (`wrote`); raises BrokenPromise into the run through `broken`."""

    def __init__(self, cluster: Cluster, *, leaders_write: bool) -> None:
        self._cluster, self._leaders_write = cluster, leaders_write
        self._tree, self._trace = cluster.tree, cluster.trace
        self.broken: BrokenPromise | None = None
        self.epoch = 0
        self._author = 0
        self._states: dict[Born, PartitionState] = {}
        self._partitions: list[tuple[Born, Assignment, PartitionState | None]] = []
        self._read_at = self._checked_at = -1
        self.leaders: dict[tuple[Born, int], int] = {}
        cluster.tree.wrote = self.wrote

    def wrote(self, session: int, ops: list[ZkOp], results: list[OpResult]) -> None:
        if not all(result.ok for result in results):
            return
        try:
            for op in ops:
                if isinstance(op, SetData) and op.path == controller_znode.EPOCH_PATH:
                    self._elected(session, controller_znode.decode_epoch(op.data))
            if any(op.path.startswith(TOPICS) for op in ops if hasattr(op, "data")):
                self._check_author(session, ops)
            for op in ops:
                if op.path.startswith(TOPICS) and op.path.endswith("/state") and hasattr(op, "data"):
                    self._state_written(op.path)
        except BrokenPromise as broken:
            self.broken = self.broken or broken

    def _elected(self, session: int, epoch: int) -> None:
        if epoch <= self.epoch:
            raise BrokenPromise(f"the controller epoch went from {self.epoch} to {epoch}")
        self.epoch, self._author = epoch, session
        self._trace.count("controller elected")

    def _check_author(self, session: int, ops: list[ZkOp]) -> None:
        if session != self._author and not (self._leaders_write and all(map(self._is_isr_change, ops))):
            paths = [op.path for op in ops]
            raise BrokenPromise(f"session {session} wrote {paths}, but the controller is of session {self._author}")

    def _is_isr_change(self, op: ZkOp) -> bool:
        """What a leader below 2.7-IV2 may write without the controller: another ISR, and nothing else."""
        if not isinstance(op, SetData) or not op.path.endswith("/state") or op.version < 0:
            return False
        _, _, _, topic, _, number, _ = op.path.split("/")
        found = self.born(TopicPartition(topic, int(number)))
        before = None if found is None else self._states.get(found[0])
        after = partition_state.decode(op.data, op.version)
        return before is not None and (after.leader, after.leader_epoch, after.controller_epoch) == (
            before.leader,
            before.leader_epoch,
            before.controller_epoch,
        )

    def born(self, tp: TopicPartition) -> tuple[Born, Assignment] | None:
        """The partition's present life, and its replicas; None where there is none."""
        znode = self._tree.read(topics.topic_path(tp.topic))
        if znode is None:
            return None
        topic = _decoded_topic(znode.data)
        place = topic.partitions.get(tp.partition)
        return None if place is None else (Born(topic.topic_id, tp), place)

    def _state_written(self, path: str) -> None:
        _, _, _, topic, _, number, _ = path.split("/")
        tp = TopicPartition(topic, int(number))
        znode, found = self._tree.read(path), self.born(tp)
        if znode is None or found is None:
            raise BrokenPromise(f"{path} written although the topic has no such partition")
        born, place = found
        state = partition_state.decode(znode.data, znode.version)
        check_state(tp, state, place)
        before = self._states.get(born)
        if before is not None:
            self._check_change(tp, before, state)
        self._states[born] = state
        self._trace.say(f"state of {tp}: {state.leader} of {list(state.isr)}, epoch {state.leader_epoch}, {place}")
        self.led(born, state.leader_epoch, state.leader)
        if state.controller_epoch > self.epoch:
            raise BrokenPromise(f"{tp}: written with controller epoch {state.controller_epoch}, {self.epoch} is now")

    def _check_change(self, tp: TopicPartition, before: PartitionState, state: PartitionState) -> None:
        if state.leader_epoch < before.leader_epoch or state.controller_epoch < before.controller_epoch:
            raise BrokenPromise(f"{tp}: an epoch went back, {before} to {state}")
        if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            raise BrokenPromise(f"{tp}: another leader in the same epoch, {before} to {state}")
        count = self._trace.count
        if state.leader != before.leader:
            count("leader elected" if state.leader >= 0 else "leader lost")
        if set(state.isr) - set(before.isr):
            count("ISR grew")
        if set(before.isr) - set(state.isr):
            count("ISR shrank")
        if state.leader >= 0 and state.leader not in before.isr:
            raise BrokenPromise(f"{tp}: an unclean election, {before} to {state}")

    def led(self, born: Born, epoch: int, leader: int) -> None:
        """Somebody leads in that epoch: nobody else may."""
        if leader < 0:
            return
        known = self.leaders.setdefault((born, epoch), leader)
        if known != leader:
            raise BrokenPromise(f"{born}: {known} and {leader} both lead in epoch {epoch}")

    def partitions(self) -> list[tuple[Born, Assignment, PartitionState | None]]:
        """Every partition as ZooKeeper has it; read again whenever anything was written."""
        if self._read_at != self._tree.zxid:
            self._partitions = list(self._read())
            self._read_at = self._tree.zxid
        return self._partitions

    def _read(self) -> Iterator[tuple[Born, Assignment, PartitionState | None]]:
        for topic in self._tree.children(topics.PATH) or ():
            znode = self._tree.read(topics.topic_path(topic))
            assert znode is not None
            found = _decoded_topic(znode.data)
            for number, place in found.partitions.items():
                tp = TopicPartition(topic, number)
                state = self._tree.read(partition_state.path(tp))
                yield Born(found.topic_id, tp), place, None if state is None else _decoded(state.data, state.version)

    def check(self) -> None:
        """What has to hold at any moment; looked at again whenever anything was written."""
        if self.broken is not None:
            raise self.broken
        if self._checked_at == self._tree.zxid:
            return
        for born, place, state in self.partitions():
            if len(set(place.replicas)) != len(place.replicas):
                raise BrokenPromise(f"{born}: a replica twice in {place}")
            if state is not None:
                check_state(born.tp, state, place)
        self._checked_at = self._tree.zxid


def check_state(tp: TopicPartition, state: PartitionState, place: Assignment) -> None:
    if not set(state.isr) <= set(place.replicas) or len(set(state.isr)) != len(state.isr) or not state.isr:
        raise BrokenPromise(f"{tp}: ISR {state.isr}, replicas {place.replicas}")
    if state.leader != -1 and state.leader not in state.isr:
        raise BrokenPromise(f"{tp}: leader {state.leader} is not in the ISR {state.isr}")


@dataclass
class Exposed:
    """What has once been below somebody's high watermark; it never changes.

    What was deleted (below `deleted`, the highest log start seen) before anyone looked leaves a gap.
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

        A replica is passed over while nothing has changed that is looked at: it was compared up to its high watermark.
        """
        for machine in self._cluster.machines.values():
            node = machine.node
            if node is None:
                continue
            for tp, partition in node.replicas.hosted.partitions.items():
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
        if log.cuts != checked.cuts:
            self._trace.count("log truncated", log.cuts - checked.cuts)
            checked.cuts = log.cuts
            checked.offset = 0
        if log.cuts and (wrong := misremembered(machine, log)):
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
            partition = machine.node.replicas.hosted.partitions.get(born.tp) if machine.node is not None else None
            if partition is not None and partition.log is not None:
                found[machine.id] = (partition.log.log_end_offset, partition.log.high_watermark)
        return found

    def values(self, tp: TopicPartition) -> dict[int, bytes]:
        """The records that the partition's leader has in the end, by offset."""
        for machine in self._cluster.machines.values():
            partition = machine.node.replicas.hosted.partitions.get(tp) if machine.node is not None else None
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
        log.cuts,
    )


class Rules:
    """All of them, and whether the cluster has come to rest."""

    def __init__(self, cluster: Cluster, *, may_lose: bool = False, leaders_write: bool = False) -> None:
        """`may_lose`: what was exposed may be lost; replicas have to agree at rest all the same.

        `leaders_write`: leaders change their ISR in the state znode themselves.
        """
        self._cluster = cluster
        self.zookeeper = ZooKeeperRules(cluster, leaders_write=leaders_write)
        self.brokers = BrokerRules(cluster, self.zookeeper, may_lose=may_lose)

    def check(self, *, whole: bool = False) -> None:
        self.zookeeper.check()
        self.brokers.check(whole=whole)
        if self._cluster.trace.mistakes:
            raise BrokenPromise(self._cluster.trace.mistakes[0])

    def strays(self) -> list[str]:
        """Replicas that nobody counts on: as in Kafka, their deletion was lost with the controller that wanted it."""
        found = []
        for born, place, _ in self.zookeeper.partitions():
            found += [f"{born} on {b}" for b in self.brokers.ends(born) if b not in place.replicas]
        return found

    def compare_replicas(self) -> None:
        """Replicas at rest hold the same below the smaller of their high watermarks."""
        for born, _, _ in self.zookeeper.partitions():
            held: list[tuple[Machine, int, list[Batch]]] = []
            for machine in self._cluster.machines.values():
                partition = machine.node.replicas.hosted.partitions.get(born.tp) if machine.node is not None else None
                if partition is None or partition.log is None or machine.id not in partition.replicas:
                    continue
                log = partition.log
                held.append((machine, log.high_watermark, list(batches(machine, log, log.log_start_offset))))
            for (a, high_a, one), (b, high_b, other) in pairwise(held):
                start = max((mine[0].base for mine in (one, other) if mine), default=0)
                mine = [batch for batch in one if batch.base >= start and batch.last < min(high_a, high_b)]
                theirs = [batch for batch in other if batch.base >= start and batch.last < min(high_a, high_b)]
                if mine != theirs:
                    first = next((x, y) for x, y in zip_longest(mine, theirs) if x != y)
                    raise BrokenPromise(f"{born}: {a} and {b} differ below their high watermarks: {first}")

    def _unheard_configs(self) -> str:
        for topic in self._cluster.tree.children(configs.type_path(configs.TOPICS)) or ():
            found = self._cluster.tree.read(configs.path(configs.TOPICS, topic))
            wanted = configs.decode(found.data, topic).get("segment.bytes") if found is not None else None
            for machine in self._cluster.machines.values():
                known = machine.node.configs.topic_config(topic).segment_bytes if machine.node is not None else None
                if wanted is not None and known != int(wanted):
                    return f"{topic}: segment.bytes is {wanted}, {machine} believes {known}"
        return ""

    def unrest(self, *, ends: bool = False) -> str:
        """What is not as it should be once every broker lives; empty where all is well. `ends`: logs equally long."""
        cluster = self._cluster
        down = [m.name for m in cluster.machines.values() if not m.is_serving or m.is_leaving]
        if down:
            return f"not serving, or not for long: {down}"
        if cluster.controller() is None:
            return "there is not exactly one controller"
        if waiting := cluster.tree.children("/admin/delete_topics"):
            return f"still to be deleted: {waiting}"
        for born, place, state in self.zookeeper.partitions():
            if place.is_reassigning:
                return f"{born}: still reassigning, {place} {state}"
            if state is None or state.leader < 0 or set(state.isr) != set(place.replicas):
                return f"{born}: {place.replicas}, {state}"
            partition = cluster.machines[state.leader].node.replicas.hosted.partitions.get(born.tp)  # type: ignore[union-attr]
            if partition is None or not partition.is_leader or partition.leader_epoch != state.leader_epoch:
                return f"{born}: {state.leader} does not know that it leads, {state}"
            held = self.brokers.ends(born)
            behind = {
                b: held.get(b) for b in place.replicas if b not in held or held[b][0] < partition.log.high_watermark
            }
            if behind:
                return f"{born}: behind the leader {behind}, {partition.log.high_watermark}"
            if ends and len({held[b] for b in place.replicas}) > 1:
                return f"{born}: (end, high watermark) differ: {held}"
        return self._unheard_configs()
