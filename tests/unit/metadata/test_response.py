"""The Metadata answer, version by version (facts §19)."""

import uuid
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.response import NOT_ASKED, TopicQuery, metadata_response, queries
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import BrokerInfo, Endpoint, TopicPartition
from logyard.broker.protocol import codec

ID = uuid.UUID(int=9)


@pytest.fixture
def cache() -> MetadataCache:
    """Brokers 1 and 2 live (2 without CLIENTS), 3 dead; a is led by 1, b by 2, c by 3, the internal one by none."""
    cache = MetadataCache()
    brokers = (
        BrokerInfo(1, (Endpoint("CLIENTS", "PLAINTEXT", "h1", 1), Endpoint("INNER", "PLAINTEXT", "i1", 2)), "rack1"),
        BrokerInfo(2, (Endpoint("INNER", "PLAINTEXT", "i2", 2),)),
    )
    leaders = {"a": 1, "b": 2, "c": 3, "__consumer_offsets": -1}
    partitions = tuple(
        PartitionUpdate(TopicPartition(t, 0), leader, 5, (1, 2), (1, 2, 3), offline=(3,))
        for t, leader in leaders.items()
    )
    cache.apply_update(UpdateMetadata(1, 1, 1, partitions, brokers, {"a": ID}))
    return cache


def topics(cache: MetadataCache, names: Any = None, version: int = 12, listener: str = "CLIENTS", **fields: Any) -> Any:
    wanted = None if names is None else [TopicQuery(n) for n in names]
    response = metadata_response(cache, wanted, version, listener, **fields)
    return {t["name"]: t for t in response["topics"]}


def only(topic: Any) -> Any:
    (partition,) = topic["partitions"]
    return partition


def test_brokers_are_those_with_the_listener(cache: MetadataCache) -> None:
    response = metadata_response(cache, [], 12, "CLIENTS", cluster_id="x")
    assert response["brokers"] == [{"node_id": 1, "host": "h1", "port": 1, "rack": "rack1"}]
    assert (response["controller_id"], response["cluster_id"], response["topics"]) == (1, "x", [])
    assert [b["node_id"] for b in metadata_response(cache, [], 12, "INNER")["brokers"]] == [1, 2]


def test_all_topics(cache: MetadataCache) -> None:
    found = topics(cache)
    assert list(found) == ["a", "b", "c", "__consumer_offsets"]
    assert (found["a"]["topic_id"], found["a"]["is_internal"]) == (ID, False)
    assert found["__consumer_offsets"]["is_internal"]
    assert found["a"]["topic_authorized_operations"] == NOT_ASKED


def test_a_healthy_partition(cache: MetadataCache) -> None:
    partition = only(topics(cache)["a"])
    assert partition == {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": 1,
        "leader_epoch": 5,
        "replica_nodes": (1, 2, 3),
        "isr_nodes": (1, 2),
        "offline_replicas": (3,),
    }


@pytest.mark.parametrize(("version", "error"), [(1, 5), (5, 5), (6, 72), (12, 72)])
def test_a_live_leader_without_the_listener(cache: MetadataCache, version: int, error: ErrorCode) -> None:
    partition = only(topics(cache, version=version)["b"])
    assert (partition["error_code"], partition["leader_id"]) == (error, -1)


@pytest.mark.parametrize("version", [0, 1, 6, 12])
@pytest.mark.parametrize("topic", ["c", "__consumer_offsets"])
def test_a_dead_or_missing_leader(cache: MetadataCache, version: int, topic: Any) -> None:
    partition = only(topics(cache, version=version)[topic])
    assert (partition["error_code"], partition["leader_id"]) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_version_zero_hides_the_dead(cache: MetadataCache) -> None:
    partition = only(topics(cache, version=0, listener="INNER")["a"])
    assert (partition["error_code"], partition["replica_nodes"]) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1, 2])
    partition = only(topics(cache, version=1, listener="INNER")["a"])
    assert (partition["error_code"], partition["replica_nodes"]) == (ErrorCode.NONE, (1, 2, 3))


def test_unknown_and_refused_topics(cache: MetadataCache) -> None:
    found = topics(
        cache,
        ["none", "new", "a"],
        refusals={"new": ErrorCode.LEADER_NOT_AVAILABLE, "a": ErrorCode.TOPIC_AUTHORIZATION_FAILED},
    )
    assert [(t["error_code"], t["partitions"]) for t in found.values()] == [(3, []), (5, []), (29, [])]


def test_by_id(cache: MetadataCache) -> None:
    wanted = [TopicQuery(None, ID), TopicQuery(None, uuid.UUID(int=1))]
    known, unknown = metadata_response(cache, wanted, 12, "CLIENTS")["topics"]
    assert (known["name"], known["error_code"]) == ("a", 0)
    assert (unknown["name"], unknown["error_code"], unknown["topic_id"]) == (None, 100, uuid.UUID(int=1))
    refusals = {"a": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    (hidden,) = metadata_response(cache, wanted[:1], 12, "CLIENTS", refusals=refusals)["topics"]
    assert (hidden["name"], hidden["error_code"]) == (None, 29)


@pytest.mark.parametrize("version", range(13))
def test_every_version_encodes(cache: MetadataCache, version: int) -> None:
    fields = metadata_response(cache, None, version, "CLIENTS", cluster_id="x", topic_operations={"a": 8})
    frame = codec.encode_response(3, version, 1, fields)
    _, read = codec.decode_response(3, version, memoryview(frame)[4:])
    assert [t.name for t in read.topics] == ["a", "b", "c", "__consumer_offsets"]


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_what_is_asked(version: int) -> None:
    body = codec.encode_request(3, version, 1, None, {"topics": [{"name": "a"}]})
    header = 4 + 2 + 2 + 4 + 2 + (1 if codec.is_flexible(3, version) else 0)
    message = codec.decode_request(3, version, memoryview(body)[header:])
    assert queries(message.topics, version) == [TopicQuery("a")]
    assert queries([*message.topics] * 3, version) == [TopicQuery("a")], "once, as in Kafka"
    assert queries(None, version) is None
    assert queries([], version) == (None if version == 0 else [])
