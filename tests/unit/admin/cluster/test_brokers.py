"""What is counted per broker, what is amiss, and how it is told."""

from logyard.admin.cluster.brokers import report, text
from logyard.admin.cluster.snapshot import BrokerNode, ClusterSnapshot, PartitionView, ReplicaSize, TopicView
from logyard.broker.model import BrokerInfo, Endpoint, TopicPartition

T0 = TopicPartition("t", 0)
SNAPSHOT = ClusterSnapshot(
    cluster_id="yard",
    controller=1,
    brokers={0: BrokerNode(0, "h", 9092, "r0"), 1: BrokerNode(1, "h", 9093)},
    topics={
        "t": TopicView("t", (PartitionView(0, 0, (0, 1, 2), (0, 1)), PartitionView(1, -1, (2, 0), (2,)))),
        "u": TopicView("u", (PartitionView(0, 1, (1,), (1,)),)),
    },
)


def test_counts_and_problems() -> None:
    sizes = [ReplicaSize(0, "/a", T0, 10), ReplicaSize(0, "/b", T0, 5, is_future=True)]
    info = BrokerInfo(0, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), "r0", epoch=27)
    found = report(SNAPSHOT, {"t": 3, "u": 2}, sizes=sizes, registrations={0: info}, controller_epoch=4)
    zero, one, two = found.brokers
    assert (zero.leads, zero.preferred, zero.replicas, zero.out_of_sync, zero.bytes, zero.epoch) == (1, 1, 2, 1, 15, 27)
    assert (one.leads, one.replicas, one.bytes, one.listeners) == (1, 2, 0, None)
    assert (two.lives, two.replicas, two.out_of_sync, two.preferred) == (False, 2, 1, 1)
    assert [str(p.tp) for p in found.under_replicated] == ["t-0", "t-1"]
    assert [str(p.tp) for p in found.under_min_isr] == ["t-0", "t-1"]  # u has one replica, so one is enough
    assert [str(p.tp) for p in found.offline] == ["t-1"]
    assert found.as_json()["brokers"][1]["controller"] is True
    assert found.as_json()["offline"] == [
        {"topic": "t", "partition": 1, "leader": -1, "replicas": [2, 0], "isr": [2], "min_isr": 3}
    ]
    assert text(found) == [
        "cluster yard  controller 1 (epoch 4)  brokers 2  topics 2  partitions 3",
        "BROKER  ADDRESS  RACK  EPOCH  LEADERS  PREFERRED  REPLICAS  OUT-OF-SYNC  BYTES",
        "0       h:9092   r0    27     1        1          2         1            15",
        "1       h:9093   -     -      1        1          2         0            0      controller",
        "2       -        -     -      0        1          2         1            -      down",
        "broker 0 listens on PLAINTEXT://h:9092",
        "under-replicated: 2",
        "  t-0  leader 0  isr 0,1  replicas 0,1,2  min.insync.replicas 3",
        "  t-1  leader none  isr 2  replicas 2,0  min.insync.replicas 3",
        "under-min-isr: 2",
        "  t-0  leader 0  isr 0,1  replicas 0,1,2  min.insync.replicas 3",
        "  t-1  leader none  isr 2  replicas 2,0  min.insync.replicas 3",
        "offline: 1",
        "  t-1  leader none  isr 2  replicas 2,0  min.insync.replicas 3",
    ]


def test_nothing_amiss_and_nobody_controls() -> None:
    found = report(ClusterSnapshot("yard", -1, {}, {}), {})
    assert found.controller is None
    assert text(found)[-3:] == ["under-replicated: none", "under-min-isr: none", "offline: none"]
