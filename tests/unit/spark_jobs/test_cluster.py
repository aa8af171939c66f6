import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs import metadata
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.metadata import ClusterUnreachable, Metadata, MetadataClient, PartitionMetadata
from logyard.spark_jobs.session import bins_by_size
from tests.support.steps import Counted

CLUSTER = {"cluster_id": "c", "brokers": [{"node_id": 2}, {"node_id": 1}]}
TOPICS = [
    {
        "error_code": 0,
        "name": "t",
        "is_internal": False,
        "partitions": [
            {"partition_index": 1, "leader_id": 2, "replica_nodes": [2, 1], "isr_nodes": [2]},
            {"partition_index": 0, "leader_id": -1, "replica_nodes": [1, 2], "isr_nodes": []},
        ],
    },
    {"error_code": 0, "name": "__consumer_offsets", "is_internal": True, "partitions": []},
    {"error_code": 3, "name": "gone", "is_internal": False, "partitions": []},
]


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    clusters.add_arguments(parser)
    return parser.parse_args(given)


class Answers:
    """Stands where a connected client would be."""

    addresses: dict[int, str | None] = {}  # noqa: RUF012

    def __init__(self, bootstrap: str, security: dict[str, Any]) -> None:
        self.bootstrap, self.security = bootstrap, security

    def look(self, topics: list[str] | None) -> Metadata:
        return metadata.metadata_of({**CLUSTER, "topics": TOPICS})

    def completed(self, seen: Metadata) -> Metadata:
        return seen

    def witnessed(self, topics: list[str]) -> Metadata:
        return Metadata("c", (1, 2), {}, missing=tuple(topics))

    def broker_config(self, broker_id: int, key: str) -> str | None:
        assert key == "http.advertised.listener"
        return self.addresses[broker_id]

    def close(self) -> None:
        pass


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> type[Answers]:
    monkeypatch.setattr(clusters, "WITNESS_PAUSE_S", 0.0)
    monkeypatch.setattr(clusters, "MetadataClient", Answers)
    monkeypatch.setattr(Answers, "addresses", {1: "http://127.0.0.1:81", 2: "127.0.0.1:82"})
    return Answers


def test_metadata_is_sorted_and_knows_what_is_missing() -> None:
    seen = metadata.metadata_of({**CLUSTER, "topics": TOPICS})
    assert (seen.cluster_id, seen.brokers, seen.missing) == ("c", (1, 2), ("gone",))
    assert seen.internal == {"__consumer_offsets"}
    assert list(seen.partitions(["t", "t"])) == [
        (TopicPartition("t", 0), PartitionMetadata(-1, (1, 2), ())),
        (TopicPartition("t", 1), PartitionMetadata(2, (2, 1), (2,))),
    ]


def test_tokens_come_from_the_cluster_file(answers: type[Answers], tmp_path: Path) -> None:
    brokers = []
    for broker_id in (1, 2):
        (tmp_path / str(broker_id)).mkdir()
        (tmp_path / str(broker_id) / "http.token").write_text(f"token{broker_id}\n")
        brokers.append({"id": broker_id, "log_dirs": [str(tmp_path / str(broker_id)), "/elsewhere"]})
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"bootstrap": "h:1", "brokers": brokers}))
    found = clusters.connect(arguments("--cluster-file", str(file)))
    assert {b: (h.address, h.token) for b, h in found.brokers.items()} == {
        1: ("127.0.0.1:81", "token1"),
        2: ("127.0.0.1:82", "token2"),
    }
    assert found.unreachable == {}


def test_tokens_come_from_a_pattern_or_a_file(answers: type[Answers], tmp_path: Path) -> None:
    (tmp_path / "1.token").write_text("one")
    (tmp_path / "tokens.json").write_text('{"2": "two"}')
    common = ["--bootstrap-server", "h:1", "--token-file", str(tmp_path / "{broker}.token")]
    found = clusters.connect(arguments(*common, "--tokens", str(tmp_path / "tokens.json")))
    assert [found.brokers[b].token for b in (1, 2)] == ["one", "two"]
    half = clusters.connect(arguments(*common))
    assert list(half.brokers) == [1]
    assert "2.token cannot be read" in half.unreachable[2]
    with pytest.raises(LeaseError, match=r"broker 2: .*cannot be read"):
        half.lease(2, TopicPartition("t", 0), "r", "audit")
    assert "give --token-file" in clusters.connect(arguments("--bootstrap-server", "h:1")).unreachable[1]


def test_a_token_that_http_cannot_carry_is_not_shown(answers: type[Answers], tmp_path: Path) -> None:
    """The library's error would have it."""
    (tmp_path / "1.token").write_text("hun\nter2\n")
    (tmp_path / "tokens.json").write_text('{"2": "hun\\nter2"}')
    given = ["--token-file", str(tmp_path / "{broker}.token"), "--tokens", str(tmp_path / "tokens.json")]
    found = clusters.connect(arguments("--bootstrap-server", "h:1", *given))
    assert found.brokers == {}
    assert "1.token has line breaks" in found.unreachable[1]
    assert "--tokens has line breaks" in found.unreachable[2]


def test_a_broker_without_an_http_side_is_named(answers: type[Answers], tmp_path: Path) -> None:
    (tmp_path / "t").write_text("x")
    answers.addresses = {1: None, 2: "127.0.0.1:82"}
    found = clusters.connect(arguments("--bootstrap-server", "h:1", "--token-file", str(tmp_path / "t")))
    assert list(found.brokers) == [2]
    assert "is it a Logyard broker?" in found.unreachable[1]


def test_what_is_missing_is_said_in_one_line(answers: type[Answers], tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="give --bootstrap-server"):
        clusters.connect(arguments())
    with pytest.raises(JobFailed, match="a cluster file is for the brokers' own machine"):
        clusters.connect(arguments("--cluster-file", str(tmp_path / "no")))
    with pytest.raises(JobFailed, match="a JSON file is expected"):
        clusters.connect(arguments("--cluster-file", str(tmp_path)))
    with pytest.raises(JobFailed, match="topic x does not exist on c"):
        clusters.connect(arguments("--bootstrap-server", "h:1")).partitions(["x"])


def test_addresses_that_refuse_are_all_named() -> None:
    with pytest.raises(ClusterUnreachable, match=r"127.0.0.1:1: .*; nonsense: "):
        MetadataClient("127.0.0.1:1,nonsense", {})


def test_a_broker_that_hangs_is_waited_for_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a half-open connection each of a job's replicas on it took 10 s."""
    clock, asked, slow_s = [100.0], list[float](), 10.0

    def hang(*_: object) -> None:
        asked.append(clock[0])
        clock[0] += slow_s
        raise LeaseError("unreachable", "broker 1 at http://h:1: timed out")

    monkeypatch.setattr(clusters, "acquire", hang)
    http = {1: BrokerHttp(1, "h:1", "t")}
    cluster = clusters.Cluster(metadata.metadata_of({**CLUSTER, "topics": TOPICS}), http, now=lambda: clock[0])

    def lease() -> None:
        with pytest.raises(LeaseError, match="broker 1 at http://h:1: timed out") as caught:
            cluster.lease(1, TopicPartition("t", 0), "r", "audit")
        assert caught.value.code == "unreachable"

    for _ in range(100):
        lease()
    assert asked == [100.0]
    clock[0] += clusters.SILENT_S
    slow_s = 0.1
    for _ in range(3):
        lease()
    assert len(asked) == 4, "one that refuses at once is asked each time"


def test_work_is_spread_by_size() -> None:
    bins = bins_by_size([5, 1, 9, 3, 2], lambda n: n, 2)
    assert sorted(map(sum, bins)) == [9, 11]
    assert bins_by_size([], lambda n: 1, 4) == []
    assert len(bins_by_size([1, 2], lambda n: n, 8)) == 2


def test_items_are_not_compared_with_every_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "uses", 0)
    bins = bins_by_size([Counted(1)] * 2000, lambda n: n, 500)
    assert [len(one) for one in bins] == [4] * 500
    assert Counted.uses < 40 * 2000
