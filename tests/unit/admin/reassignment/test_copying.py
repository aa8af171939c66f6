"""How far moves are, in one line: bytes, rate, time left."""

from collections.abc import Sequence

from logyard.admin.cluster.snapshot import BrokerNode, ClusterSnapshot, PartitionView, ReplicaSize, TopicView
from logyard.admin.reassignment.copying import CopyReport
from logyard.admin.reassignment.plan import Move
from logyard.broker.model import Assignment, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MIB = 2**20
MOVES = [Move(T0, (1, 2), (2, 3), 100 * MIB), Move(T1, (1, 2), (2, 3), 50 * MIB)]


class Reader:
    """A cluster whose two partitions move from broker 1 to broker 3."""

    def __init__(self) -> None:
        self.running = {tp: Assignment((1, 2, 3), (3,), (1,)) for tp in (T0, T1)}
        self.sizes = {(T0, 1): 100 * MIB, (T1, 1): 50 * MIB}
        self.asked: list[int] = []

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot:
        views = [
            PartitionView(tp.partition, 1, (1, 2, 3), (1, 2))
            if tp in self.running
            else PartitionView(tp.partition, 2, (2, 3), (2, 3))
            for tp in (T0, T1)
        ]
        brokers = {broker: BrokerNode(broker, "h", 9092) for broker in (1, 2, 3)}
        return ClusterSnapshot("c", 1, brokers, {"t": TopicView("t", tuple(views))}, reassignments=dict(self.running))

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]:
        self.asked = list(brokers or ())
        return [ReplicaSize(broker, "/d", tp, size) for (tp, broker), size in self.sizes.items()]


def test_bytes_rate_and_time_left_are_told() -> None:
    reader, report = Reader(), CopyReport(MOVES)
    assert report.line(reader, 0.0) == "0 of 2 moves in place; 0 B of 150 MiB copied"
    assert reader.asked == [1, 3]  # the leader and who gets replicas, not the whole cluster
    reader.sizes |= {(T0, 3): 20 * MIB, (T1, 3): 10 * MIB}
    assert report.line(reader, 30.0) == (
        "0 of 2 moves in place; 30.0 MiB of 150 MiB copied, 1.0 MiB per second, about 2 min left"
    )
    del reader.running[T1]  # it ended: its other 40 MiB were copied since
    reader.sizes[T0, 3] = 40 * MIB
    assert report.line(reader, 60.0) == (
        "1 of 2 moves in place; 40.0 MiB of 100 MiB copied, 2.0 MiB per second, about 30 s left"
    )
    assert report.line(reader, 90.0).endswith("40.0 MiB of 100 MiB copied, 0 B per second")
    del reader.running[T0]
    assert report.line(reader, 120.0) == "2 of 2 moves in place"


def test_a_replica_that_is_larger_than_its_leader_is_not_more_than_whole() -> None:
    reader = Reader()
    reader.sizes |= {(T0, 3): 170 * MIB, (T1, 3): 50 * MIB}
    assert CopyReport(MOVES).line(reader, 0.0).endswith("150 MiB of 150 MiB copied")
