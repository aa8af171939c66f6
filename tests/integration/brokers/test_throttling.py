"""Clients and followers held back, and consumers that read from the broker in their own rack: three real brokers."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.integration.conftest import CONFIG
from tests.support.real_cluster import RealCluster, eventually
from tests.support.wire_client import ask

RACKED_BROKER = Path(__file__).resolve().parents[2] / "librdkafka" / "racked_broker.py"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ALTER_QUOTAS, DESCRIBE_QUOTAS, REASSIGN, ALTER_CONFIGS, CREATE_TOPICS = 49, 48, 45, 44, 19
TOPIC, BROKER = 2, 4
KIB = 1024
# Until every broker has heard of a change by ZooKeeper.
HEARD_S = 2.0


@pytest.fixture(scope="module")
def racked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three brokers, each in a rack of its own: RACK0 to RACK2."""
    command = (sys.executable, "-P", str(RACKED_BROKER))
    cluster = LocalCluster(tmp_path_factory.mktemp("racked"), broker_command=command)
    # Three windows instead of eleven: what is free at the start, and what has to be waited for, is two seconds' worth.
    quotas = {"quota.window.num": "3"}
    cluster.start(Settings(3, None, None, {**CONFIG, **quotas, "replica.selector.class": RACK_AWARE}))
    try:
        yield RealCluster(cluster)
    finally:
        cluster.stop(grace_s=0)  # nobody looks at what a clean stop leaves


def addresses(cluster: RealCluster) -> list[str]:
    return cluster.bootstrap.split(",")


def set_quota(cluster: RealCluster, client_id: str, **quotas: float) -> None:
    ops = [{"key": key, "value": value, "remove": False} for key, value in quotas.items()]
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    (entry,) = ask(addresses(cluster)[0], ALTER_QUOTAS, 1, fields).entries
    assert entry.error_code == 0, entry.error_message


def controller(cluster: RealCluster) -> str:
    return addresses(cluster)[cluster.controller()[0]]


def configure(cluster: RealCluster, kind: int, name: str, **values: str) -> None:
    configs = [{"name": k.replace("_", "."), "config_operation": 0, "value": v} for k, v in values.items()]
    fields = {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}], "validate_only": False}
    for address in addresses(cluster) if kind == BROKER else addresses(cluster)[:1]:
        (answer,) = ask(address, ALTER_CONFIGS, 1, fields).responses
        assert answer.error_code == 0, answer.error_message


def timed_produce(cluster: RealCluster, topic: str, client_id: str, kib: int) -> tuple[float, list[float]]:
    """Send that many KiB and then one more record; returns how long that took, and the throttle times told (s)."""
    told: list[float] = []
    conf: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": client_id,
        "linger.ms": 0,
        "throttle_cb": lambda event: told.append(event.throttle_time),
    }
    producer = Producer(conf)
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0  # connected, metadata known
    begun = time.monotonic()
    for _ in range(kib // 100):
        producer.produce(topic, b"x" * 100 * KIB)
        producer.flush(30)
    producer.produce(topic, b"last")
    assert producer.flush(30) == 0
    return time.monotonic() - begun, told


def test_a_producer_over_its_quota_is_told_and_held_back_and_others_are_not(racked: RealCluster) -> None:
    racked.create("produced", 1)
    set_quota(racked, "slow-producer", producer_byte_rate=100 * KIB)
    described = ask(addresses(racked)[1], DESCRIBE_QUOTAS, 1, {"components": [], "strict": False})
    assert [(v.key, v.value) for e in described.entries for v in e.values] == [("producer_byte_rate", 100.0 * KIB)]
    time.sleep(HEARD_S)
    free_s, told = timed_produce(racked, "produced", "free-producer", 300)
    assert told == []
    held_s, told = timed_produce(racked, "produced", "slow-producer", 300)
    # Two windows' worth (200 KiB) is free; 100 KiB more are half too many over two seconds: one second, or less where
    # they took long to come.
    assert 0 < max(told) <= 1.3
    assert held_s > free_s + max(told) - 0.3, "the answer came at once, but nothing more was read for that long"


def test_a_consumer_over_its_quota_gets_all_but_later(racked: RealCluster) -> None:
    racked.create("consumed", 1)
    # As in Kafka a batch of more than the windows hold would never be sent at all.
    one_by_one = {"batch.num.messages": 1}
    racked.produce("consumed", [(None, bytes([n]) * 100 * KIB) for n in range(5)], **one_by_one)
    set_quota(racked, "slow-consumer", consumer_byte_rate=100 * KIB)
    time.sleep(HEARD_S)

    def consume(client_id: str) -> tuple[float, list[float]]:
        told: list[float] = []
        conf: dict[str, Any] = {
            "bootstrap.servers": racked.bootstrap,
            "client.id": client_id,
            "group.id": "unused",
            "enable.auto.commit": False,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
        consumer = Consumer(conf)
        consumer.assign([TopicPartition("consumed", 0, 0)])
        begun, found = time.monotonic(), 0
        while found < 5 and time.monotonic() - begun < 30:
            found += sum(m.error() is None for m in consumer.consume(5, 0.2))
        taken = time.monotonic() - begun
        consumer.close()
        assert found == 5
        return taken, told

    free_s, told = consume("free-consumer")
    assert told == []
    held_s, told = consume("slow-consumer")
    assert told
    assert held_s > free_s + 1


def test_a_moving_replica_is_held_back_to_the_rate_and_let_go_when_it_is_raised(racked: RealCluster) -> None:
    topic = {
        "name": "moved",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [0]}],
        "configs": [],
    }
    fields = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
    assert ask(controller(racked), CREATE_TOPICS, 5, fields).topics[0].error_code == 0
    racked.produce("moved", [(None, bytes([n]) * 500 * KIB) for n in range(20)])
    listed = {"leader_replication_throttled_replicas": "0:0", "follower_replication_throttled_replicas": "*"}
    configure(racked, TOPIC, "moved", **listed)
    configure(racked, BROKER, "", leader_replication_throttled_rate=str(1000 * KIB))
    time.sleep(HEARD_S)
    move = {"topics": [{"name": "moved", "partitions": [{"partition_index": 0, "replicas": [0, 1]}]}]}
    begun = time.monotonic()
    answer = ask(controller(racked), REASSIGN, 0, {"timeout_ms": 10_000, **move})
    assert answer.responses[0].partitions[0].error_code == 0
    time.sleep(max(0.0, begun + 2.5 - time.monotonic()))
    # At 1000 KiB/s and 1 MiB at a time at most 4 MiB of 10 MiB can have come over by now; without a throttle all has.
    assert not racked.isrs_full("moved")

    def copied() -> int:
        return sum(path.stat().st_size for path in racked.replica_dirs("moved", 0)[1].glob("*.log"))

    found = eventually(copied, "the replica is being copied")
    assert found <= (time.monotonic() - begun + 2.5) * 1000 * KIB
    configure(racked, BROKER, "", leader_replication_throttled_rate=str(10**9))
    eventually(lambda: racked.isrs_full("moved"), "the replica caught up once the throttle was raised")
    assert racked.digests("moved", 0)[0] == racked.digests("moved", 0)[1]


def test_a_consumer_reads_from_the_follower_in_its_rack(racked: RealCluster) -> None:
    racked.create("read", 1)
    (partition,) = racked.describe("read").values()
    eventually(lambda: racked.isrs_full("read"), "all replicas in sync")
    follower = next(broker for broker in partition.replicas if broker != partition.leader)
    racked.produce("read", [(None, b"one")])
    seen: list[int] = []

    def stats(text: str) -> None:
        found = json.loads(text)["topics"].get("read", {}).get("partitions", {}).get("0")
        if found is not None:
            seen.append(found["broker"])

    conf: dict[str, Any] = {
        "bootstrap.servers": racked.bootstrap,
        "group.id": "unused",
        "client.rack": f"RACK{follower}",
        "statistics.interval.ms": 50,
        "stats_cb": stats,
        "enable.auto.commit": False,
    }
    consumer = Consumer(conf)
    consumer.assign([TopicPartition("read", 0, 0)])

    def next_value() -> bytes | None:
        message = consumer.poll(0.2)
        return message.value() if message is not None and message.error() is None else None

    def reads_from_follower() -> bool:
        consumer.poll(0.1)
        return bool(seen) and seen[-1] == follower

    assert eventually(next_value, "the first record") == b"one"
    eventually(reads_from_follower, f"the consumer in RACK{follower} fetches from broker {follower}")
    racked.produce("read", [(None, b"two")])
    assert eventually(next_value, "what is written later, from the follower") == b"two"
    assert seen[-1] == follower != partition.leader
    consumer.close()
