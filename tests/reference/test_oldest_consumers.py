"""OffsetCommit v0 and OffsetFetch v0, by hand, on Apache Kafka's broker and ours in one cluster: the same answers."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from kazoo.client import KazooClient

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.cli import main as entry
from logyard.local import interrupts
from tests.reference.both_kinds import BothKinds
from tests.support import kafka
from tests.support.real_cluster import eventually
from tests.support.wire_client import ask

pytestmark = pytest.mark.timeout(600)

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
PARTITIONS = range(4)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothKinds]:
    kafka.jars_or_skip()
    with (
        kafka.running(tmp_path_factory.mktemp("oldest"), "KO") as cluster,
        closing(BothKinds(cluster, "KO")) as both,
    ):
        both.admin.create_topic(NewTopic("t", partitions=len(PARTITIONS), replication_factor=2))
        for address in map(cluster.address, (0, 1)):
            probe = {("t", p): (0, None) for p in PARTITIONS}
            eventually(lambda a=address, o=probe: set(commit(a, "first", o).values()) == {0}, "t is known everywhere")
        yield both


@pytest.fixture
def zk(brokers: BothKinds) -> Iterator[KazooClient]:
    with brokers.cluster.zookeeper() as client:
        yield client


def commit(address: str, group: str, offsets: Mapping[tuple[str, int], tuple[int, str | None]]) -> dict[Any, int]:
    """The error of each partition."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": p, "committed_offset": offset, "committed_metadata": metadata}
                for (name, p), (offset, metadata) in offsets.items()
                if name == topic
            ],
        }
        for topic in dict.fromkeys(name for name, _ in offsets)
    ]
    answer = ask(address, OFFSET_COMMIT, 0, {"group_id": group, "topics": topics})
    return {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def fetch(address: str, group: str, topics: dict[str, list[int]]) -> dict[Any, tuple[int, int, str]]:
    """Error, offset and metadata of each partition."""
    asked = [{"name": name, "partition_indexes": list(partitions)} for name, partitions in topics.items()]
    answer = ask(address, OFFSET_FETCH, 0, {"group_id": group, "topics": asked})
    return {
        (t.name, p.partition_index): (p.error_code, p.committed_offset, p.metadata)
        for t in answer.topics
        for p in t.partitions
    }


@pytest.mark.parametrize(
    "group",
    ["g", "a/b", "x//y", "", ".", "..", "a/../b", "end/", "\0", "\x7f", "\u00fc", "\ue000", "\U0001f600", "G" * 30_000],
    ids=lambda name: ascii(name)[:20],
)
def test_commits_and_what_is_read_back(brokers: BothKinds, group: str) -> None:
    told = {}
    for broker in (0, 1):
        address = brokers.cluster.address(broker)
        offsets: dict[tuple[str, int], tuple[int, str | None]] = {
            ("t", 0): (5 + broker, "m"),
            ("t", 1): (-1, None),
            ("t", 2): (2**63 - 1, "m" * 4096),
            ("t", 3): (1, "m" * 4097),
            ("t", 4): (1, ""),
            ("none", 0): (1, ""),
        }
        codes = commit(address, group, offsets)
        again = commit(address, group, offsets)
        reads = [
            fetch(brokers.cluster.address(other), group, {"t": [0, 1, 2, 3, 4, 0], "none": [0], "t.": [0]})
            for other in (0, 1)
        ]
        assert reads[0] == reads[1]
        plain = {tp: (code, offset - broker if tp == ("t", 0) and not code else offset, metadata)
                 for tp, (code, offset, metadata) in reads[0].items()}  # fmt: skip
        told[broker] = (codes, again, plain)
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "data",
    [b"7", b"+7", b"-7", b"007", b" 7", b"7\n", b"7.0", b"1_0", b"0x7", b"", b"\xff", b"9223372036854775808",
     b"-9223372036854775808", "\u0664\u0662".encode(), "\uff17".encode(), b"{}", b"-", b"0" * 500 + b"1"],
    ids=lambda data: ascii(data)[:20],
)  # fmt: skip
def test_what_somebody_else_wrote(brokers: BothKinds, zk: KazooClient, data: bytes) -> None:
    path = "/consumers/by-hand/offsets/t/0"
    zk.ensure_path(path)
    zk.set(path, data)
    asked = {"t": [0, 1]}
    theirs, ours = (fetch(brokers.cluster.address(broker), "by-hand", asked) for broker in (0, 1))
    assert ours == theirs


def test_no_coordinator_sees_them(brokers: BothKinds, zk: KazooClient) -> None:
    for broker in (0, 1):
        group = f"apart-{broker}"
        assert commit(brokers.cluster.address(broker), group, {("t", 0): (3, "")}) == {("t", 0): 0}
        assert zk.get(f"/consumers/{group}/offsets/t/0")[0] == b"3"
        assert brokers.admin.group_offsets(group) == {}


def test_a_group_is_shown_and_migrated(
    brokers: BothKinds, zk: KazooClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, str]:
        status = entry.main(["groups", *words, "--zookeeper", str(brokers.cluster.description["zookeeper"])])
        return status, capsys.readouterr().out

    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    brokers.cluster.produce("t", [(None, b"r") for _ in range(20)], partitioner="murmur2_random")
    ends = brokers.admin.offsets([TopicPartition("t", p) for p in PARTITIONS])
    moved: dict[tuple[str, int], tuple[int, str | None]] = {
        ("t", p): (ends[TopicPartition("t", p)] // 2, "") for p in PARTITIONS
    }
    assert set(commit(brokers.cluster.address(0), "moving", moved).values()) == {0}
    assert "moving" in run("list")[1].splitlines()
    described = [line.split() for line in run("describe", "--group", "moving")[1].splitlines() if line]
    assert [(int(row[3]), int(row[4])) for row in described[1:]] == [
        (moved["t", p][0], ends[TopicPartition("t", p)]) for p in PARTITIONS
    ]
    lag = sum(end - moved[tp][0] for tp, end in ends.items())
    for said in ("4 offsets were taken over", "0 offsets were taken over, 4 are there already"):
        status, out = run("migrate", "--group", "moving", "--execute")
        assert (status, out.splitlines()[-1]) == (0, f"Group 'moving': {said}; lag {lag}.")
    assert brokers.admin.group_offsets("moving") == {tp: moved[tp][0] for tp in ends}
    assert run("reset-offsets", "--group", "moving", "--all-topics", "--to-earliest", "--execute")[0] == 0
    assert fetch(brokers.cluster.address(0), "moving", {"t": [0]}) == {("t", 0): (0, 0, "")}
    assert run("delete", "--group", "moving")[0] == 0
    assert zk.exists("/consumers/moving") is None
