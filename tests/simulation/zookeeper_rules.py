"""The rules for the contents of ZooKeeper (facts §23), checked at every write."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from logyard.broker.model import Assignment, PartitionState, TopicId, TopicPartition
from logyard.broker.znodes import controller as controller_znode
from logyard.broker.znodes import partition_state, topics
from logyard.broker.znodes.ops import OpResult, SetData, ZkOp
from tests.simulation.cluster import Cluster
from tests.simulation.ledger import BrokenPromise

TOPICS = topics.PATH + "/"

_decoded_topic = lru_cache(4096)(topics.decode)
_decoded = lru_cache(4096)(partition_state.decode)


class Born(NamedTuple):
    """One partition of one life of a topic: names are reused, these are not."""

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
        """Record that a broker leads in that epoch: no other one may."""
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
        """Check the invariants that hold at any moment, after each write."""
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
