"""Fenced writes: the check comes first, limits are kept, a failed unit is settled alone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.clock import ManualClock
from logyard.broker.controller import fencing
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import ZkMulti
from logyard.broker.controller.fencing import BYTES_MAX, OPS_MAX, ControllerMoved, Unit
from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import Check, Create, OpResult, SetData, ZkCode, ZkOp


class Tree:
    """Carries out the transactions of a fenced write and keeps them."""

    def __init__(self, version: int = 0) -> None:
        self.tree = ZooKeeperTree(ManualClock())
        self.session = MemoryZooKeeper(self.tree).session_id
        self.context = ControllerContext(ControllerSettings(1), epoch=1, epoch_zk_version=version)
        self.rounds: list[Sequence[Sequence[ZkOp]]] = []
        self.do(Create("/controller_epoch", b"1"))

    def do(self, *ops: ZkOp) -> list[OpResult]:
        return self.tree.multi(self.session, ops)

    def write(self, units: Sequence[Unit]) -> list[list[OpResult]]:
        steps = fencing.write(self.context, units)
        try:
            batch = next(steps)
            while True:
                (effect,) = batch
                assert isinstance(effect, ZkMulti)
                self.rounds.append(effect.multis)
                batch = steps.send([[self.do(*ops) for ops in effect.multis]])
        except StopIteration as stop:
            results: list[list[OpResult]] = stop.value
            return results


def test_every_transaction_begins_with_the_check() -> None:
    tree = Tree()
    results = tree.write([[Create(f"/n{i}")] for i in range(450)])
    assert all(r[0].ok for r in results)
    (multis,) = tree.rounds
    assert [len(ops) for ops in multis] == [OPS_MAX + 1, OPS_MAX + 1, 51]
    assert all(ops[0] == Check("/controller_epoch", 0) for ops in multis)


def test_bytes_are_limited_too() -> None:
    tree = Tree()
    tree.write([[Create(f"/n{i}", b"x" * 100_000)] for i in range(12)])
    (multis,) = tree.rounds
    sizes = [[len(op.data) for op in ops if isinstance(op, Create)] for ops in multis]
    assert [size for each in sizes for size in each] == [100_000] * 12
    assert max(map(sum, sizes)) <= BYTES_MAX


def test_a_unit_beyond_the_limits_is_sent_alone() -> None:
    tree = Tree()
    big: list[ZkOp] = [Create(f"/b{i}") for i in range(OPS_MAX + 50)]
    results = tree.write([[Create("/a")], big, [Create("/c")]])
    assert [all(r.ok for r in unit) for unit in results] == [True, True, True]


@given(bad=st.sets(st.integers(0, 299)))
def test_failed_units_are_settled_alone_and_in_few_rounds(bad: set[int]) -> None:
    tree = Tree()
    for i in sorted(bad):
        tree.do(Create(f"/n{i}"))
    results = tree.write([[Create(f"/n{i}"), Create(f"/n{i}/child")] for i in range(300)])
    assert {i for i, unit in enumerate(results) if not all(r.ok for r in unit)} == bad
    assert all(fencing.deciding(results[i]).code is ZkCode.NODE_EXISTS for i in bad)
    assert len(tree.rounds) <= 6
    assert tree.tree.children("/") is not None


def test_a_newer_epoch_stops_everything() -> None:
    tree = Tree(version=0)
    tree.do(SetData("/controller_epoch", b"2"))
    with pytest.raises(ControllerMoved):
        tree.write([[Create("/n")]])
    assert tree.tree.read("/n") is None


def test_a_vanished_epoch_stops_everything() -> None:
    tree = Tree()
    tree.context.epoch_zk_version = 5
    with pytest.raises(ControllerMoved):
        tree.write([[Create("/n")]])


def test_nothing_to_write_costs_nothing() -> None:
    tree = Tree()
    assert tree.write([]) == []
    assert tree.rounds == []
