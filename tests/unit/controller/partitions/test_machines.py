"""Both state machines, move by move: the legal ones happen, the others are refused without stopping the batch."""

from collections.abc import Sequence
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.controller.broker_requests.batch import BrokerRequest, LeaderAndIsrRequest, StopReplicaRequest
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase, ReplicaPhase, Topic
from logyard.broker.controller.effects import Note, Send, Steps, ZkChildren, ZkMulti, ZkRead
from logyard.broker.controller.partitions import partition_machine, replica_machine
from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.model import Assignment, BrokerInfo, PartitionState, TopicPartition
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import partition_state, paths
from logyard.broker.znodes.ops import Create

TP = TopicPartition("t", 0)


class Bench:
    """A controller's memory over a tree, brokers 1 to 3, and a topic t of one partition on them."""

    def __init__(self, *, with_state: bool) -> None:
        self.tree = ZooKeeperTree(ManualClock())
        self.session = MemoryZooKeeper(self.tree).session_id
        self.context = ControllerContext(ControllerSettings(1), epoch=3, epoch_zk_version=0)
        self.context.brokers.update({b: BrokerInfo(b, (), epoch=b) for b in (1, 2, 3)})
        self.partition = Partition(TP, Assignment((1, 2, 3)))
        self.context.topics["t"] = Topic("t", partitions={0: self.partition})
        self.sent: list[BrokerRequest] = []
        self.notes: list[Note] = []
        self.make("/controller_epoch")
        self.make("/brokers/topics/t")
        if with_state:
            self.partition.state = PartitionState(1, 5, (1, 2), 2)
            self.make(partition_state.path(TP), partition_state.encode(self.partition.state))

    def make(self, path: str, data: bytes = b"") -> None:
        for parent in paths.ancestors(path):
            self.tree.multi(self.session, [Create(parent)])
        self.tree.multi(self.session, [Create(path, data)])

    def run(self, steps: Steps[Any]) -> Any:
        results: Sequence[Any] | None = None
        try:
            while True:
                batch = next(steps) if results is None else steps.send(results)
                results = [self._perform(effect) for effect in batch]
        except StopIteration as stop:
            return stop.value

    def _perform(self, effect: Any) -> Any:
        match effect:
            case ZkMulti(multis):
                return [self.tree.multi(self.session, ops) for ops in multis]
            case ZkRead(wanted):
                return [self.tree.read(path) for path in wanted]
            case ZkChildren(wanted):
                return [self.tree.children(path) for path in wanted]
            case Send(request):
                self.sent.append(request)
            case Note():
                self.notes.append(effect)
            case _:
                raise AssertionError(effect)
        return None

    def state(self) -> PartitionState:
        found = self.tree.read(partition_state.path(TP))
        assert found is not None
        return partition_state.decode(found.data, found.version)


PARTITION_MOVES = {
    PartitionPhase.NEW: "NON_EXISTENT",
    PartitionPhase.ONLINE: "NEW ONLINE OFFLINE",
    PartitionPhase.OFFLINE: "NEW ONLINE OFFLINE",
    PartitionPhase.NON_EXISTENT: "OFFLINE",
}
REPLICA_MOVES = {
    ReplicaPhase.NEW: "NON_EXISTENT",
    ReplicaPhase.ONLINE: "NEW ONLINE OFFLINE DELETION_INELIGIBLE",
    ReplicaPhase.OFFLINE: "NEW ONLINE OFFLINE DELETION_INELIGIBLE",
    ReplicaPhase.DELETION_STARTED: "OFFLINE",
    ReplicaPhase.DELETION_SUCCESSFUL: "DELETION_STARTED",
    ReplicaPhase.DELETION_INELIGIBLE: "OFFLINE DELETION_STARTED",
    ReplicaPhase.NON_EXISTENT: "DELETION_SUCCESSFUL",
}


@pytest.mark.parametrize("target", list(PartitionPhase))
@pytest.mark.parametrize("start", list(PartitionPhase))
def test_partition_moves(start: PartitionPhase, target: PartitionPhase) -> None:
    bench = Bench(with_state=start is not PartitionPhase.NEW)
    bench.partition.phase = start
    failures = bench.run(partition_machine.change(bench.context, [bench.partition], target))
    legal = start.name in PARTITION_MOVES[target].split()
    assert bench.partition.phase is (target if legal else start)
    assert (TP in failures) == (not legal)
    assert any(n.level == "warning" for n in bench.notes) == (not legal)


@pytest.mark.parametrize("target", list(ReplicaPhase))
@pytest.mark.parametrize("start", list(ReplicaPhase))
def test_replica_moves(start: ReplicaPhase, target: ReplicaPhase) -> None:
    bench = Bench(with_state=True)
    bench.partition.replicas = {2: start}
    bench.run(replica_machine.change(bench.context, [(bench.partition, 2)], target))
    legal = start.name in REPLICA_MOVES[target].split()
    assert bench.partition.replica_phase(2) is (target if legal else start)
    assert bool(bench.notes) == (not legal)
    if not legal:
        assert bench.sent == []


def test_an_illegal_move_does_not_stop_the_others() -> None:
    bench = Bench(with_state=True)
    bench.partition.replicas = {1: ReplicaPhase.DELETION_STARTED, 3: ReplicaPhase.ONLINE}
    bench.run(replica_machine.change(bench.context, [(bench.partition, 1), (bench.partition, 3)], ReplicaPhase.OFFLINE))
    assert bench.partition.replicas == {1: ReplicaPhase.DELETION_STARTED, 3: ReplicaPhase.OFFLINE}


def test_new_replica_that_is_the_leader_is_refused() -> None:
    bench = Bench(with_state=True)
    bench.run(replica_machine.change(bench.context, [(bench.partition, 1), (bench.partition, 3)], ReplicaPhase.NEW))
    assert bench.partition.replicas == {3: ReplicaPhase.NEW}
    (request,) = [r for r in bench.sent if isinstance(r, LeaderAndIsrRequest)]
    assert (request.broker_id, request.partitions[0].is_new) == (3, True)


def test_follower_outside_the_isr_goes_offline_without_a_write() -> None:
    bench = Bench(with_state=True)
    bench.partition.replicas = {3: ReplicaPhase.ONLINE}
    bench.run(replica_machine.change(bench.context, [(bench.partition, 3)], ReplicaPhase.OFFLINE))
    assert bench.state() == PartitionState(1, 5, (1, 2), 2)
    assert [r.broker_id for r in bench.sent if isinstance(r, StopReplicaRequest)] == [3]


def test_a_leader_goes_offline_and_leaves_no_leader() -> None:
    bench = Bench(with_state=True)
    bench.partition.replicas = {1: ReplicaPhase.ONLINE}
    bench.run(replica_machine.change(bench.context, [(bench.partition, 1)], ReplicaPhase.OFFLINE))
    assert bench.state() == PartitionState(-1, 6, (2,), 3, 1)


def test_the_last_member_of_an_isr_stays_in_it() -> None:
    bench = Bench(with_state=True)
    bench.partition.replicas = {1: ReplicaPhase.ONLINE, 2: ReplicaPhase.ONLINE}
    everyone = [(bench.partition, 1), (bench.partition, 2)]
    bench.run(replica_machine.change(bench.context, everyone, ReplicaPhase.OFFLINE))
    assert bench.state() == PartitionState(-1, 7, (2,), 3, 2)


def test_stale_memory_is_read_again_before_the_decision() -> None:
    bench = Bench(with_state=True)
    bench.partition.state = PartitionState(1, 4, (1, 2, 3), 2, partition_epoch=-5)
    bench.partition.phase = PartitionPhase.OFFLINE
    del bench.context.brokers[1]
    failures = bench.run(partition_machine.change(bench.context, [bench.partition], PartitionPhase.ONLINE))
    assert failures == {}
    assert bench.state() == PartitionState(2, 6, (2,), 3, 1)


def test_a_state_of_a_newer_controller_is_not_touched() -> None:
    bench = Bench(with_state=False)
    newer = PartitionState(1, 5, (1, 2), 9)
    bench.make(partition_state.path(TP), partition_state.encode(newer))
    bench.partition.phase = PartitionPhase.OFFLINE
    failures = bench.run(partition_machine.change(bench.context, [bench.partition], PartitionPhase.ONLINE))
    assert "controller epoch 9" in failures[TP]
    assert bench.state() == newer


def test_existing_state_of_a_new_partition_is_adopted() -> None:
    bench = Bench(with_state=False)
    bench.make(partition_state.path(TP), partition_state.encode(PartitionState(2, 5, (2, 3), 1)))
    bench.partition.phase = PartitionPhase.NEW
    assert bench.run(partition_machine.change(bench.context, [bench.partition], PartitionPhase.ONLINE)) == {}
    assert bench.state() == PartitionState(2, 6, (2, 3), 3, 1)


def test_no_replica_online_leaves_a_new_partition_new() -> None:
    bench = Bench(with_state=False)
    bench.context.brokers.clear()
    bench.partition.phase = PartitionPhase.NEW
    assert TP in bench.run(partition_machine.change(bench.context, [bench.partition], PartitionPhase.ONLINE))
    assert bench.partition.phase is PartitionPhase.NEW
    assert bench.tree.read(partition_state.path(TP)) is None
