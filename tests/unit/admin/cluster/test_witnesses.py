"""Whether a topic is gone, or a broker away: one broker that does not know it is no proof."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.errors import KafkaConnectionError
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataResponse

from logyard.admin.cluster import asking, connection
from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.presence import told, with_brokers
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.groups.reset_scenarios import named_partitions
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.protocol import codec

METADATA, DESCRIBE_QUORUM, VERSION = 3, 55, 12
CONTROLLER, BEHIND, OTHER = 1, 2, 3


class Brokers:
    """A connection to three brokers. `knows`: broker → its topics; None: it has just started. `away`: do not answer."""

    def __init__(self, knows: dict[int, Sequence[str] | None], *, kraft: bool = False) -> None:
        self.knows, self.kraft = knows, kraft
        self.away: set[int] = set()
        self.controllers = dict.fromkeys(knows, CONTROLLER)
        self.ids = dict.fromkeys(knows, UUID(int=5))  # of all topics that a broker knows
        self.unmet: dict[int, int] = {}  # broker → one that it does not know, although that one is back
        self.any: Iterator[int] = iter(())  # who is asked where any broker will do; then always BEHIND

    def offers(self, api_key: int) -> bool:
        return self.kraft and api_key == DESCRIBE_QUORUM

    def refresh(self) -> None: ...

    def send(self, request: Any, node: int | None = None) -> Any:
        broker = next(self.any, BEHIND) if node is None else node
        if broker in self.away:
            raise KafkaConnectionError("socket disconnected")
        if isinstance(request, DescribeConfigsRequest):
            there = self.knows[broker] or ()
            return SimpleNamespace(results=[_settings_of(name, name in there) for _, name, _ in request.resources])
        named = None if request.topics is None else [topic.name for topic in request.topics]
        whole = codec.encode_response(METADATA, VERSION, 1, self._fields(broker, named))
        return MetadataResponse.decode(whole[4 + 4 + 1 :], version=VERSION)

    def _fields(self, broker: int, named: list[str] | None) -> dict[str, Any]:
        known = self.knows[broker]
        there = known or ()
        partition: dict[str, Any] = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 0}
        partition |= {"replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}
        alive = [] if known is None else [b for b in sorted(self.knows) if b != self.unmet.get(broker)]
        return {
            "throttle_time_ms": 0,
            "brokers": [{"node_id": b, "host": f"host{b}", "port": 9092, "rack": None} for b in alive],
            "cluster_id": "c",
            "controller_id": -1 if known is None else self.controllers[broker],
            "topics": [
                {
                    "error_code": int(ErrorCode.NONE if name in there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    "name": name,
                    "topic_id": self.ids[broker] if name in there else UUID(int=0),
                    "is_internal": False,
                    "partitions": [partition] if name in there else [],
                    "topic_authorized_operations": -(2**31),
                }
                for name in (there if named is None else named)
            ],
        }


def _settings_of(topic: str, is_known: bool) -> SimpleNamespace:
    code = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return SimpleNamespace(resource_name=topic, error_code=int(code), error_message=None, configs=[])


def client(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, total_timeout_s: float = 0.0) -> KafkaClusterClient:
    monkeypatch.setattr(connection, "connect", lambda *_: brokers)
    monkeypatch.setattr(asking, "RETRY_PAUSE_S", 0.0)
    settings = ClusterSettings.read("127.0.0.1:1", {})
    return KafkaClusterClient(replace(settings, request_timeout_s=0.0, total_timeout_s=total_timeout_s))


def test_the_controllers_broker_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({CONTROLLER: ["new", "old"], BEHIND: ["old"], OTHER: []})
    found = client(monkeypatch, brokers).snapshot(["old", "new", "nowhere"])
    assert (sorted(found.topics), found.missing) == (["new", "old"], ("nowhere",))


def test_what_nobody_can_tell_is_neither_there_nor_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({CONTROLLER: ["new", "old"], BEHIND: ["old"], OTHER: []})
    brokers.away = {CONTROLLER}
    asked = client(monkeypatch, brokers)
    found = asked.snapshot(["old", "new"])
    assert (sorted(found.topics), found.missing) == (["old"], ())
    with pytest.raises(ClusterUnreachable):
        asked.witnessed(["new"])


def test_who_is_no_longer_controller_is_no_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({CONTROLLER: [], BEHIND: [], OTHER: ["new"]})
    brokers.controllers[CONTROLLER] = OTHER  # it knows that, the broker that was asked first does not
    asked = client(monkeypatch, brokers)
    assert asked.snapshot(["new"]).missing == ()
    with pytest.raises(ApiError) as refusal:
        asked.witnessed(["new"])
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    brokers.controllers = dict.fromkeys(brokers.controllers, OTHER)
    assert list(asked.snapshot(["new"]).topics) == ["new"]


def test_who_says_alone_that_it_is_controller_is_no_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has lost ZooKeeper, and is the one that is asked by chance."""
    brokers = Brokers({CONTROLLER: ["old"], BEHIND: ["old", "new"], OTHER: ["old", "new"]})
    brokers.controllers = {CONTROLLER: CONTROLLER, BEHIND: OTHER, OTHER: OTHER}
    brokers.any = repeat(CONTROLLER)
    asked = client(monkeypatch, brokers)
    assert asked.snapshot(["new"]).missing == ()
    for topics in (["new"], None):
        with pytest.raises(ApiError) as refusal:
            asked.witnessed(topics)
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    assert list(asked.witnessed(["old"]).topics) == ["old"]
    brokers.away = {BEHIND}
    assert asked.snapshot(["new"]).missing == ()
    brokers.away = {BEHIND, OTHER}
    assert asked.witnessed(["new"]).missing == ("new",), "nobody contradicts"


def test_in_a_kraft_cluster_every_broker_is_a_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller that Metadata names there is any broker."""
    brokers = Brokers({CONTROLLER: [], BEHIND: [], OTHER: ["new"]}, kraft=True)
    asked = client(monkeypatch, brokers)
    found = asked.snapshot(["new", "nowhere"])
    assert (list(found.topics), found.missing) == (["new"], ("nowhere",))
    assert list(asked.witnessed().topics) == ["new"]
    brokers.away = {OTHER}
    assert asked.snapshot(["new"]).missing == ()


def test_in_a_kraft_cluster_brokers_agree_on_the_topic_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that is behind tells of an earlier topic, with its leaders."""
    brokers = Brokers({CONTROLLER: ["t"], BEHIND: ["t"], OTHER: []}, kraft=True)
    asked = client(monkeypatch, brokers)
    assert list(asked.witnessed(["t"]).topics) == ["t"]
    brokers.ids[BEHIND] = UUID(int=4)
    with pytest.raises(ClusterUnreachable, match="different topics of the name t"):
        asked.witnessed(["t"])
    assert list(asked.witnessed().topics) == ["t"], "of all topics some may be changing at any time"


def test_a_broker_that_one_broker_does_not_know_is_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({CONTROLLER: [], BEHIND: [], OTHER: []})
    brokers.unmet = {BEHIND: OTHER}
    brokers.any = repeat(BEHIND)
    asked = client(monkeypatch, brokers)
    seen = asked.snapshot()
    assert OTHER not in seen.brokers
    assert sorted(with_brokers(asked, seen, [OTHER, 99]).brokers) == sorted([CONTROLLER, BEHIND, OTHER])
    assert with_brokers(asked, seen, [BEHIND]) is seen, "nobody else is asked"
    brokers.controllers = {CONTROLLER: CONTROLLER, BEHIND: CONTROLLER, OTHER: BEHIND}
    brokers.unmet, brokers.away = {}, {BEHIND}
    brokers.any = repeat(CONTROLLER)
    with pytest.raises(ApiError) as refusal:
        with_brokers(asked, seen, [99])
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER


def test_in_a_kraft_cluster_a_broker_that_any_broker_knows_is_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({CONTROLLER: [], BEHIND: [], OTHER: []}, kraft=True)
    brokers.unmet = {CONTROLLER: OTHER}
    asked = client(monkeypatch, brokers)
    brokers.any = repeat(CONTROLLER)
    assert OTHER not in asked.snapshot().brokers
    assert OTHER in with_brokers(asked, asked.snapshot(), [OTHER]).brokers


def test_each_named_topic_is_there_or_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({CONTROLLER: ["new", "old"], BEHIND: ["old"], OTHER: []})
    asked = client(monkeypatch, brokers)
    found = told(asked, ["old", "new", "nowhere"])
    assert (sorted(found.topics), found.missing) == (["new", "old"], ("nowhere",))
    brokers.away = {CONTROLLER}
    assert list(told(asked, ["old"]).topics) == ["old"]
    with pytest.raises(ClusterUnreachable):
        told(asked, ["old", "new"])
    with pytest.raises(ClusterUnreachable):
        named_partitions(asked, ["old", "new:0"])


def test_a_topic_that_the_login_may_not_describe_is_not_gone() -> None:
    class Refused:
        def snapshot(self, topics: Sequence[str] | None = None) -> ClusterSnapshot:
            return ClusterSnapshot(cluster_id="c", controller=1, brokers={}, topics={})

        witnessed = snapshot

    with pytest.raises(ApiError, match="topic t cannot be described") as refusal:
        told(Refused(), ["t"])
    assert refusal.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_broker_that_has_just_started_is_not_an_empty_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({CONTROLLER: ["t"], BEHIND: None, OTHER: ["t"]})
    with pytest.raises(ClusterUnreachable, match="knows no brokers yet"):
        client(monkeypatch, brokers).snapshot()
    brokers.any = iter([BEHIND, OTHER])
    found = client(monkeypatch, brokers, total_timeout_s=60.0).snapshot()
    assert (list(found.topics), sorted(found.brokers)) == (["t"], [1, 2, 3])


def test_settings_that_one_broker_does_not_know_are_not_those_of_a_topic_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the end of a throttle would leave the topic's part of it, and forget it."""
    monkeypatch.setattr(asking, "SPREADING_S", -1.0)
    asked = client(monkeypatch, Brokers({CONTROLLER: ["t"], BEHIND: [], OTHER: ["t"]}))
    with pytest.raises(ClusterUnreachable, match="topic t: the broker that was asked does not know it yet"):
        asked.topic_configs("t")
    with pytest.raises(ApiError) as refusal:
        asked.topic_configs("nowhere")
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
