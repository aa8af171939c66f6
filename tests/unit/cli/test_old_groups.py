"""`logyard groups … --zookeeper` and `groups migrate`, against a cluster and a ZooKeeper in memory."""

from dataclasses import replace
from typing import Any

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.cli import options
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.tree_znodes import TreeZnodes

ZK = ("--zookeeper", "z:1")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONE = {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"}


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({0: None})
    MemoryClient(made).create_topic(NewTopic("t", 2, 1))
    made.tick()
    made.end_offsets.update({T0: 100, T1: 100})
    made.group_commits["reports"] = {T1: 40}
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, znodes: TreeZnodes, cluster: MemoryCluster) -> list[str]:
    """The bootstrap addresses of each command."""
    found: list[str] = []

    def open_requests(settings: ClusterSettings) -> MemoryClient:
        found.append(",".join(settings.bootstrap))
        return MemoryClient(cluster)

    monkeypatch.setattr(options, "open_requests", open_requests)
    znodes.broker(0)
    znodes.make("/consumers/reports/offsets/t/0", b"30")
    znodes.make("/consumers/reports/offsets/t/1", b"20")
    znodes.make("/consumers/live/offsets/t/0", b"9")
    znodes.make("/consumers/live/ids/live_host-1-ab", ONE, ephemeral=True)
    znodes.make("/consumers/live/owners/t/0", b"live_host-1-ab-0", ephemeral=True)
    return found


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line]


def test_list(run: Any, asked: list[str]) -> None:
    assert run("groups", "list", *ZK) == (0, "live\nreports\n", "")
    status, out, err = run("groups", "list", *ZK, "--states", "empty", "--type")
    assert (status, err, words(out)) == (0, "", [["GROUP", "TYPE", "STATE"], ["reports", "Old", "Empty"]])
    assert asked == []


def test_describe(run: Any, asked: list[str]) -> None:
    status, out, err = run("groups", "describe", *ZK, "--all-groups")
    assert (status, err) == (0, "Consumer group 'reports' has no active members.\n")
    assert words(out)[1] == ["live", "t", "0", "9", "100", "91", "live_host-1-ab", "-", "-"]
    assert words(out)[3:] == [
        ["reports", "t", "0", "30", "100", "70", "-", "-", "-"],
        ["reports", "t", "1", "20", "100", "80", "-", "-", "-"],
    ]
    status, out, err = run(
        "groups", "describe", *ZK, "--bootstrap-server", "b:1", "--group", "live", "--members", "--verbose"
    )
    assert words(out)[1] == ["live", "live_host-1-ab", "-", "-", "1", "(0)"]
    assert run("groups", "describe", *ZK, "--group", "live", "--state")[1].split()[-3:] == ["(-1)", "Stable", "1"]
    assert asked == ["h:9092", "b:1", "h:9092"]
    assert run("groups", "describe", *ZK, "--group", "nobody")[2] == (
        "logyard: The consumer group 'nobody' does not exist.\n"
    )


def test_reset_offsets(run: Any, asked: list[str], znodes: TreeZnodes) -> None:
    to = ("groups", "reset-offsets", *ZK, "--group", "reports")
    status, out, _ = run(*to, "--topic", "t:0", "--shift-by", "-10")
    assert (status, words(out)[1:]) == (0, [["reports", "t", "0", "20"]])
    assert znodes.content("/consumers/reports/offsets/t/0") == 30
    assert run(*to, "--all-topics", "--to-latest", "--execute")[0] == 0
    assert [znodes.content(f"/consumers/reports/offsets/t/{p}") for p in (0, 1)] == [100, 100]
    status, _, err = run("groups", "reset-offsets", *ZK, "--group", "live", "--all-topics", "--to-latest", "--execute")
    assert (status, "is inactive, but the current state is Stable" in err) == (1, True)
    assert znodes.content("/consumers/live/offsets/t/0") == 9


def test_delete(run: Any, asked: list[str], znodes: TreeZnodes) -> None:
    status, out, err = run("groups", "delete", *ZK, "--all-groups")
    assert (status, out) == (1, "Deleted all consumer group information for group 'reports' in zookeeper.\n")
    assert err.endswith("Group 'live' could not be deleted due to: Its consumers are still active.\n")
    assert znodes.children("/consumers") == ["live"]


def test_migrate(run: Any, asked: list[str], znodes: TreeZnodes) -> None:
    command = ("groups", "migrate", *ZK, "--group", "reports")
    status, out, err = run(*command)
    assert (status, err) == (0, "")
    assert words(out)[1:-1] == [
        ["reports", "t", "0", "30", "-", "30", "70"],
        ["reports", "t", "1", "20", "40", "-", "60", "is", "there", "already"],
    ]
    assert out.endswith(
        "Group 'reports': 1 offset would be taken over, 1 is there already; lag 130; add --execute to do it.\n"
    )
    for said in ("1 offset was taken over, 1 is there already", "0 offsets were taken over, 2 are there already"):
        status, out, _ = run(*command, "--execute")
        assert (status, out.splitlines()[-1]) == (0, f"Group 'reports': {said}; lag 130.")
    status, out, err = run("groups", "migrate", *ZK, "--all-groups", "--execute")
    assert (status, err) == (1, "logyard: Group 'live' still has old consumers: stop them first\n")
    assert "Group 'reports': 0 offsets were taken over, 2 are there already; lag 130." in out


@pytest.mark.parametrize("heard", ["one partition", "nothing"])
def test_a_broker_that_has_not_heard_of_all_partitions_hides_no_offset(
    run: Any, asked: list[str], znodes: TreeZnodes, cluster: MemoryCluster, heard: str
) -> None:
    """The topic was made, or got partitions, just now: the controller tells it."""
    if heard == "nothing":
        cluster.unheard = {"t"}
    else:
        whole = MemoryClient(cluster).snapshot(["t"]).topics["t"]
        cluster.outdated = {"t": replace(whole, partitions=whole.partitions[:1])}
    status, out, _ = run("groups", "migrate", *ZK, "--group", "reports", "--execute")
    assert (status, out.splitlines()[-1]) == (
        0,
        "Group 'reports': 1 offset was taken over, 1 is there already; lag 130.",
    )
    to = ("groups", "reset-offsets", *ZK, "--group", "reports", "--all-topics", "--to-latest", "--execute")
    assert words(run(*to)[1])[1:] == [["reports", "t", "0", "100"], ["reports", "t", "1", "100"]]
    assert znodes.content("/consumers/reports/offsets/t/1") == 100


def test_no_way_to_the_brokers(run: Any, asked: list[str], znodes: TreeZnodes) -> None:
    assert run("groups", "list") == (
        1,
        "",
        "logyard: name the cluster: --bootstrap-server host:port, or --zookeeper host:port[/chroot] for the first "
        "consumers\n",
    )
    znodes.new_session()
    status, _, err = run("groups", "describe", *ZK, "--group", "reports")
    assert (status, "no broker is registered with an address for PLAINTEXT" in err) == (1, True)
