"""Plans while one broker does not tell what it holds."""

from collections.abc import Sequence

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import LogDirs, NewTopic
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.reassignment.forecast import as_markdown
from logyard.admin.reassignment.unsized import SizesUnknown
from logyard.broker.model import TopicPartition
from tests.support.airflow_tasks import context, run
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.moves import decommission, four_brokers, plan

pytestmark = pytest.mark.airflow

UNTOLD = "broker 2 does not tell its bytes (broker 2 is silent)"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Broker 2 lives, and does not answer DescribeLogDirs."""
    log_dirs = MemoryClient.log_dirs

    def told(self: MemoryClient, brokers: Sequence[int] | None = None) -> LogDirs:
        if brokers is None or 2 in brokers:
            raise ClusterUnreachable("broker 2 is silent")
        return log_dirs(self, brokers)

    monkeypatch.setattr(MemoryClient, "log_dirs", told)
    return four_brokers(monkeypatch)


def test_a_plan_says_whose_bytes_it_lacks(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    document = plan(drain=[1])
    assert document["bytes_moved"] == 1000 * len(document["partitions"])  # other replicas' sizes are known
    assert document["unsized"] == [f"{UNTOLD}: they are not in this plan's numbers"]
    assert document["unsized"][0] in capsys.readouterr().out
    assert document["unsized"][0] in as_markdown(document)
    assert {entry["broker"] for entry in document["brokers"] if entry["bytes_before"] is None} == {2}


def test_a_partition_that_only_the_silent_broker_has_counts_as_nothing(cluster: MemoryCluster) -> None:
    MemoryClient(cluster).create_topic(NewTopic("u", assignment={0: (2,)}))
    cluster.tick()
    cluster.sizes[TopicPartition("u", 0)] = 7000
    document = plan(topics=["u"], drain=[2])
    assert document["unsized"][1] == "1 move of unknown size count as 0 bytes, u-0 among them"
    assert document["bytes_moved"] == 0


def test_a_broker_is_emptied_while_another_does_not_tell_its_bytes(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(decommission(), context())[0]["empty"] is True
    assert UNTOLD in capsys.readouterr().out


def test_bytes_that_decide_have_to_be_known(cluster: MemoryCluster) -> None:
    with pytest.raises(SizesUnknown, match="balanced: broker 2 does not tell its bytes") as refused:
        plan(balance_disk=True)
    assert str(refused.value).endswith("wait until it answers, or balance counts only")
    for act in (
        lambda: plan(drain=[1], disk_capacities=100_000),
        lambda: run(decommission(disk_capacities=100_000), context()),
    ):
        with pytest.raises(SizesUnknown, match=r"how full its disks get, is not known \(t-\d comes\)"):
            act()


def test_disks_with_a_capacity_need_no_bytes_of_a_broker_to_which_nothing_comes(cluster: MemoryCluster) -> None:
    assert plan(drain=[2], disk_capacities=100_000)["partitions"]
    MemoryClient(cluster).create_topic(NewTopic("u", assignment={0: (2,)}))
    cluster.tick()
    with pytest.raises(SizesUnknown, match="how large u-0 is, is not known"):
        plan(topics=["u"], drain=[2], disk_capacities=100_000)
