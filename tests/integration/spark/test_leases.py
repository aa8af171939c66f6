"""Leases against real brokers: a compaction of every replica under load, and what a killed broker makes of it."""

import signal
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs.leases import client
from logyard.spark_jobs.leases.broker_http import LeaseError
from tests.support.lease_job import broker_https, compact_replicas, decide, kept_below, rewrite_and_commit
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import read


def events(start: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % 97), b"%d-" % number + bytes(50)) for number in range(start, start + count)]


def last_values(records: list[Any]) -> dict[bytes, bytes]:
    return {record.key(): record.value() for record in records}


def read_all(cluster: RealCluster, topic: str, end: bytes) -> list[Any]:
    """Consume from the start until the record with that value has come."""
    records: list[Any] = []

    def whole() -> bool:
        records[:] = read(cluster.bootstrap, topic)
        return any(record.value() == end for record in records)

    eventually(whole, f"{end!r} can be read", 60)
    return records


def test_every_replica_is_compacted_under_load_and_survives_a_kill(own_cluster: RealCluster, tmp_path: Path) -> None:
    topic = "latest"
    own_cluster.create(topic, 1, 3, cleanup_policy="compact", segment_bytes="20000", min_insync_replicas="2")
    small = {"batch.size": 4000}  # several batches to a segment
    assert len(own_cluster.produce(topic, events(0, 3000), **small)) == 3000
    eventually(lambda: own_cluster.isrs_full(topic), "all in sync")
    brokers = broker_https(own_cluster.description)

    def all_know() -> bool:
        """Followers hear of the high watermark one fetch late."""
        return all(client.partition_status(b, topic, 0)["high_watermark"] == 3000 for b in brokers.values())

    eventually(all_know, "every replica knows the high watermark")
    taken = {number: client.acquire(broker, topic, 0, "run", "compact") for number, broker in brokers.items()}
    assert {lease.leader_epoch for lease in taken.values()} == {0}
    leader = next(lease for lease in taken.values() if lease.is_leader)
    range_end = min(lease.end_offset for lease in taken.values())
    decision = decide(leader, range_end, 0)
    load = threading.Thread(target=own_cluster.produce, args=(topic, events(3000, 3000)), kwargs=small)
    load.start()
    followers = [lease for lease in taken.values() if lease is not leader]
    for lease in [*followers, leader]:
        answer = rewrite_and_commit(lease, decision, tmp_path / "part")
        assert answer["bytes_after"] < answer["bytes_before"]
    load.join()

    end = events(5999, 1)[0][1]
    expected = dict(events(0, 6000))
    records = read_all(own_cluster, topic, end)
    assert last_values(records) == expected
    assert len(records) < 3000 + 97 + 2000
    for number, broker in brokers.items():
        status = client.partition_status(broker, topic, 0)
        assert status["checkpoints"]["cleaner-offset-checkpoint"] == range_end
        assert client.partitions_status(broker)["strays"] == []
        assert not list(own_cluster.replica_dirs(topic, 0)[number].glob(".leases/*/lease.json"))

    killed = leader.broker.broker_id
    held = client.acquire(brokers[killed], topic, 0, "another run", "audit")
    assert Path(held.details["links_dir"]).is_dir()
    own_cluster.cluster.stop_broker(killed, signal.SIGKILL)
    assert last_values(read_all(own_cluster, topic, end)) == expected
    own_cluster.cluster.start_broker(killed)
    eventually(lambda: own_cluster.isrs_full(topic), "all in sync again", 60)
    back = broker_https(own_cluster.description)[killed]
    assert back.call("GET", held.path)["state"] == "active", "an audit goes on after a kill"
    leased = held.segments[0]
    piece = memoryview(bytearray(leased.size))
    assert back.read(held.file_path(leased.base_offset, "log"), 0, leased.size, piece) == leased.size
    with pytest.raises(LeaseError) as refused:
        back.call("GET", leader.path + "0")
    assert refused.value.code == "unknown_lease"
    repeated = next(lease for lease in taken.values() if lease.broker.broker_id == killed)
    assert back.call("GET", repeated.path)["state"] == "committed", "its answer is remembered"
    assert client.partition_status(back, topic, 0)["clean_offset"] == range_end


def test_a_replica_that_was_down_applies_the_decision_when_it_is_back(own_cluster: RealCluster, tmp_path: Path) -> None:
    topic = "missed"
    own_cluster.create(topic, 1, 3, cleanup_policy="compact", segment_bytes="20000", min_insync_replicas="2")
    small = {"batch.size": 4000}
    own_cluster.produce(topic, events(0, 3000), **small)
    brokers = broker_https(own_cluster.description)
    leader_id = own_cluster.describe(topic)[0].leader
    down = next(number for number in brokers if number != leader_id)
    own_cluster.cluster.stop_broker(down, signal.SIGKILL)
    eventually(lambda: len(own_cluster.describe(topic)[0].isrs) == 2, "it is out of the ISR")
    up = [broker for number, broker in brokers.items() if number != down]
    range_end = compact_replicas(up, topic, 3000, tmp_path / "part")

    own_cluster.cluster.start_broker(down)
    eventually(lambda: own_cluster.isrs_full(topic), "all in sync again", 60)
    own_cluster.produce(topic, events(3000, 1000), **small)  # what it holds of the range is now in closed segments
    back = broker_https(own_cluster.description)[down]
    eventually(lambda: client.partition_status(back, topic, 0)["clean_offset"] == range_end, "it has caught up", 60)
    directories = own_cluster.replica_dirs(topic, 0)
    expected = kept_below(directories[leader_id], range_end)
    assert len(expected) == 97
    assert kept_below(directories[down], range_end) == expected
    assert last_values(read_all(own_cluster, topic, events(3999, 1)[0][1])) == dict(events(0, 4000))


def test_deleted_topics_lose_their_leases_and_metrics_are_served(cluster: RealCluster) -> None:
    topic = "shortlived"
    cluster.create(topic, 1, 3, cleanup_policy="compact")
    cluster.produce(topic, events(0, 10))
    brokers = broker_https(cluster.description)
    lease = client.acquire(next(iter(brokers.values())), topic, 0, "run", "audit")
    assert lease.segments[-1].active
    admin = cluster.admin()  # librdkafka ends its work with the handle
    admin.delete_topics([topic], operation_timeout=20)[topic].result(30)

    def lost() -> bool:
        state: str = lease.broker.call("GET", lease.path)["state"]
        return state == "lost"

    eventually(lost, "the lease is lost")
    controllers = 0
    for broker in brokers.values():
        with urllib.request.urlopen(f"http://{broker.address}/metrics") as response:
            controllers += b"\nlogyard_active_controller_count 1.0\n" in response.read()
    assert controllers == 1
