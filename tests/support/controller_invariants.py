"""The invariants of facts §23 that can be seen in ZooKeeper and in the controller's memory."""

from collections.abc import Sequence

from logyard.broker.controller.context import PartitionPhase
from logyard.broker.model import PartitionState
from logyard.broker.znodes import partition_state
from logyard.broker.znodes.ops import Create, Delete, OpResult, SetData, ZkOp
from tests.support.controller_world import World


def check(world: World) -> None:
    """Raise AssertionError at the first invariant that does not hold."""
    active = [b for b in world.brokers.values() if b.runner.is_active]
    assert len(active) <= 1, "more than one controller"
    if not active:
        return
    context = active[0].runner.context
    for partition in context.partitions():
        tp, state, replicas = partition.tp, partition.state, partition.assignment.replicas
        assert len(set(replicas)) == len(replicas), f"{tp}: repeated replicas {replicas}"
        found = world.tree.read(partition_state.path(tp))
        if state is None:
            continue
        assert found is not None, f"{tp}: the state is in memory only"
        try:
            on_disk = partition_state.decode(found.data, found.version)
        except Exception:  # a test broke it on purpose
            continue
        assert on_disk == state, f"{tp}: memory {state}, znode {on_disk}"
        assert state.leader == -1 or state.leader in state.isr, f"{tp}: leader {state.leader}, ISR {state.isr}"
        assert set(state.isr) <= set(replicas), f"{tp}: ISR {state.isr}, replicas {replicas}"
        assert state.controller_epoch <= context.epoch, f"{tp}: written by a later controller"
        if partition.phase is PartitionPhase.ONLINE:
            assert context.is_online(state.leader, tp) or state.leader in context.shutting_down, (
                f"{tp}: Online with leader {state.leader}"
            )


class History:
    """Every state that was ever written, checked as it is written (facts §23)."""

    def __init__(self, world: World) -> None:
        self._states: dict[str, PartitionState] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._epoch = 0
        self.writes = 0
        real = world.tree.multi

        def multi(session_id: int, ops: Sequence[ZkOp]) -> list[OpResult]:
            results = real(session_id, ops)
            for op, result in zip(ops, results, strict=True):
                if result.ok:
                    self._written(op, result)
            return results

        world.tree.multi = multi  # type: ignore[method-assign]

    def _written(self, op: ZkOp, result: OpResult) -> None:
        if op.path == "/controller_epoch" and isinstance(op, SetData):
            epoch = int(op.data)
            assert epoch > self._epoch, f"controller epoch {epoch} after {self._epoch}"
            self._epoch = epoch
        if not op.path.endswith("/state"):
            return
        if isinstance(op, Delete):
            self._states.pop(op.path, None)
            self._leaders = {key: leader for key, leader in self._leaders.items() if key[0] != op.path}
        elif isinstance(op, Create | SetData):
            self._check_state(op.path, partition_state.decode(op.data, result.version))

    def _check_state(self, path: str, new: PartitionState) -> None:
        self.writes += 1
        old = self._states.get(path)
        if old is not None:
            assert new.leader_epoch >= old.leader_epoch, f"{path}: leader epoch went back: {old} → {new}"
            assert new.controller_epoch >= old.controller_epoch, f"{path}: controller epoch went back"
        assert new.controller_epoch <= self._epoch, f"{path}: written under epoch {new.controller_epoch}"
        if new.leader != -1:
            first = self._leaders.setdefault((path, new.leader_epoch), new.leader)
            assert first == new.leader, f"{path}: two leaders in epoch {new.leader_epoch}"
            assert new.leader in new.isr, f"{path}: {new}"
        assert new.isr, f"{path}: an empty ISR"
        self._states[path] = new
