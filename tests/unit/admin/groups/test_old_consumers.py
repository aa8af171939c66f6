"""Groups in ZooKeeper: read whatever stands there, deleted while nobody is in them, migrated without going back."""

import pytest

from logyard.admin.groups import migration, old_consumers
from logyard.admin.groups.groups import EMPTY, STABLE, BadGroups
from logyard.admin.groups.old_consumers import OldGroup
from logyard.broker.model import TopicPartition
from logyard.broker.znodes.consumers import Registration
from logyard.broker.znodes.ops import Create, OpResult, ZkOp
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.tree_znodes import TreeZnodes

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
ONE = {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"}


@pytest.fixture
def znodes() -> TreeZnodes:
    made = TreeZnodes()
    made.make("/consumers/g/offsets/t/0", b"5")
    made.make("/consumers/g/offsets/t/1", b"no number")
    made.make("/consumers/g/offsets/t/01", b"7")
    made.make("/consumers/g/offsets/t/x", b"7")
    made.make("/consumers/g/offsets/empty")
    made.make("/consumers/g/ids/c1", ONE, ephemeral=True)
    made.make("/consumers/g/ids/c2", b"{", ephemeral=True)
    made.make("/consumers/g/owners/t/0", b"c1-0", ephemeral=True)
    made.make("/consumers/g/owners/t/2", b"gone-0", ephemeral=True)
    made.make("/consumers/h/ids")
    made.make("/consumers/bare")
    return made


def test_reading(znodes: TreeZnodes) -> None:
    assert old_consumers.names(znodes) == ["bare", "g", "h"]
    found = old_consumers.read(znodes, "g")
    assert found is not None
    assert found.consumers == {"c1": Registration("static", {"t": 1}), "c2": None}
    assert (found.offsets, found.owners) == ({T0: 5}, {T0: "c1", T2: "gone"})
    assert [problem.partition(":")[0] for problem in found.problems] == [
        "znode /consumers/g/offsets/t/1",
        "znode /consumers/g/ids/c2",
    ]
    group = found.as_group()
    assert (group.state, [(m.consumer_id, m.partitions) for m in group.members]) == (
        STABLE,
        [("c1", (T0,)), ("c2", ()), ("gone", (T2,))],
    )
    assert [old_consumers.read(znodes, name) for name in ("nobody", "", "g/offsets", "..")] == [None] * 4
    empty = old_consumers.read(znodes, "h")
    assert empty == OldGroup("h")
    assert empty.as_group().state == EMPTY


def test_deleting(znodes: TreeZnodes) -> None:
    before = znodes.tree.zxid
    assert old_consumers.delete(znodes, "g") == "Its consumers are still active."
    assert (
        old_consumers.delete(znodes, "nobody") == old_consumers.delete(znodes, "h/ids") == "The group does not exist."
    )
    assert znodes.tree.zxid == before
    assert old_consumers.delete(znodes, "h") is None
    assert old_consumers.delete(znodes, "bare") is None
    assert old_consumers.names(znodes) == ["g"]


def test_a_consumer_that_comes_while_its_group_is_deleted(monkeypatch: pytest.MonkeyPatch, znodes: TreeZnodes) -> None:
    znodes.make("/consumers/h/offsets/t/0", b"1")
    commit = znodes.commit

    def late(ops: list[ZkOp]) -> list[OpResult]:
        commit([Create("/consumers/h/ids/c", ephemeral=True)])
        return commit(ops)

    monkeypatch.setattr(znodes, "commit", late)
    assert old_consumers.delete(znodes, "h") == "Its consumers are still active."
    assert znodes.tree.read("/consumers/h/offsets/t/0") is not None


def test_writing(znodes: TreeZnodes) -> None:
    old_consumers.write_offsets(znodes, "new", {T0: 1, T1: -1})
    found = old_consumers.read(znodes, "new")
    assert found is not None
    assert found.offsets == {T0: 1, T1: -1}
    with pytest.raises(BadGroups, match="refused to write /consumers/g/ids/c1/offsets/t/0: failed"):
        old_consumers.write_offsets(znodes, "g/ids/c1", {T0: 1})  # below an ephemeral znode nothing can stand


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({0: None})
    for tp in (T0, T1, T2):
        made.start_offsets[tp], made.end_offsets[tp] = 10, 100
    return made


KNOWN = {"t": 3}
GONE = TopicPartition("gone", 0)


@pytest.mark.parametrize(
    ("stored", "committed", "target", "lag"),
    [
        (50, None, 50, 50),
        (50, 40, 50, 50),
        (50, 50, None, 50),
        (50, 60, None, 40),  # what consumers of today have read is not read again
        (3, None, 10, 90),  # retention has deleted the next records
        (3, 10, None, 90),
        (100, None, 100, 0),
        (101, None, None, None),
        (101, 20, None, 80),
        (-1, None, None, None),
    ],
)
def test_one_offset(cluster: MemoryCluster, stored: int, committed: int | None, target: int | None, lag: int) -> None:
    client = MemoryClient(cluster)
    if committed is not None:
        client.alter_group_offsets("g", {T0: committed})
    (step,) = migration.plan(client, OldGroup("g", offsets={T0: stored}), KNOWN).steps
    assert (step.target, step.lag) == (target, lag)


def test_a_migration_can_be_repeated(cluster: MemoryCluster) -> None:
    client = MemoryClient(cluster)
    group = OldGroup("g", offsets={T0: 50, T1: 3, T2: 101, GONE: 4})
    first = migration.plan(client, group, KNOWN)
    assert first.changes == {T0: 50, T1: 10}
    assert first.result(done=False) == (
        "Group 'g': 2 offsets would be taken over, 2 cannot be taken over; lag 140; add --execute to do it."
    )
    client.alter_group_offsets("g", first.changes)
    second = migration.plan(client, group, KNOWN)
    assert second.changes == {}
    assert second.result(done=True) == (
        "Group 'g': 0 offsets were taken over, 2 are there already, 2 cannot be taken over; lag 140."
    )
    assert migration.table([second])[1].split() == [
        "GROUP", "TOPIC", "PARTITION", "ZOOKEEPER-OFFSET", "COMMITTED-OFFSET", "NEW-OFFSET", "LAG", "NOTE",
    ]  # fmt: skip


def test_a_group_in_use(cluster: MemoryCluster) -> None:
    cluster.group_members["g"] = 1
    with pytest.raises(BadGroups, match="Group 'g' is in use \\(Stable\\): stop its consumers first"):
        migration.plan(MemoryClient(cluster), OldGroup("g", offsets={T0: 50}), KNOWN)
