"""Whom an audit has set aside, and what it says of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.audit import quarantine
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.quarantine import suspects
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition

TP = TopicPartition("t", 0)


@pytest.fixture
def replicas(tmp_path: Path) -> list[Replica]:
    found = []
    for broker in (2, 3, 1):
        directory = write_partition(tmp_path / str(broker), "t-0", [[batch([Rec(0, b"k", b"v")])]])
        found.append(replace(of_partition_directory(str(directory), broker), is_leader=broker == 1))
    return found


def bad(broker: int, check: str = "crc", level: str = BAD) -> Finding:
    return Finding(level, check, *TP, broker, "file", 0, 0, f"{check} of {broker}")


def test_damaged_followers_are_suspects_once(replicas: list[Replica]) -> None:
    findings = [bad(2, "timestamps", WARN), bad(2), bad(2, "framing"), bad(3, "index")]
    assert [(s.broker_id, s.reason, s.kept_because) for s in suspects(replicas, findings)] == [
        (2, "crc: crc of 2", ""),
        (3, "index: index of 3", ""),
    ]


@pytest.mark.parametrize("check", sorted(quarantine.NO_PROOF))
def test_what_is_no_proof_accuses_nobody(replicas: list[Replica], check: str) -> None:
    assert suspects(replicas, [bad(2, check)]) == []


def test_leaders_and_followers_of_damaged_leaders_stay(replicas: list[Replica]) -> None:
    found = {s.broker_id: s.kept_because for s in suspects(replicas, [bad(1), bad(2)])}
    assert found == {2: "the leader is damaged as well", 1: "it leads: let a sound replica lead, then audit again"}
    alone = [r for r in replicas if not r.is_leader]
    assert [s.kept_because for s in suspects(alone, [bad(2)])] == ["no leader was audited"]


def test_what_brokers_say_is_told(replicas: list[Replica], monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(broker: BrokerHttp, topic: str, partition: int, reason: str) -> dict[str, Any]:
        if broker.broker_id == 3:
            raise LeaseError("needed_in_isr", "broker 3 refused (needed_in_isr): too few")
        return {"kept": "/data/2/t-0.x-stray"}

    monkeypatch.setattr(quarantine, "quarantine_replica", ask)
    monkeypatch.setattr(quarantine, "LOOK_S", 0)
    isrs, topic_id = iter([[1, 3, 2], [1, 3, 2], [1, 3], [1, 3, 2]]), replicas[0].topic_id
    monkeypatch.setattr(quarantine, "partition_status", lambda *_: {"isr": next(isrs), "topic_id": topic_id})
    brokers = {n: BrokerHttp(n, "h:1", "secret") for n in (1, 2, 3)}
    said: list[str] = []
    rows = quarantine.set_aside(suspects(replicas, [bad(1, "x", WARN), bad(2), bad(3)]), brokers, said.append)
    quarantine.wait_in_sync(rows, brokers, 5)
    assert [(r["partition"], r["replica"], r["refused"], r.get("in_sync")) for r in rows] == [
        ("t-0", 2, None, True),
        ("t-0", 3, "broker 3 refused (needed_in_isr): too few", None),
    ]
    assert "audit: t-0 on broker 2: kept in /data/2/t-0.x-stray" in said


def test_a_replica_of_a_topic_that_was_made_again_is_left_alone(
    replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit reads for hours: the damage was the former topic's, and what is set aside nobody deletes."""
    asked = []
    monkeypatch.setattr(quarantine, "quarantine_replica", lambda *about: asked.append(about) or {"kept": "/there"})
    monkeypatch.setattr(quarantine, "partition_status", lambda broker, *_: {"topic_id": f"of {broker.broker_id}"})
    brokers = {n: BrokerHttp(n, "h:1", "secret") for n in (1, 2, 3)}
    known = [replace(replica, topic_id="of 3") for replica in replicas]
    rows = quarantine.set_aside(suspects(known, [bad(2), bad(3)]), brokers, lambda _: None)
    assert [(row["replica"], row["refused"]) for row in rows] == [
        (2, "its topic was deleted and created again since it was audited"),
        (3, None),
    ]
    assert [broker.broker_id for broker, *_ in asked] == [3]


def test_a_broker_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request to it may take minutes, and it may have thousands of replicas."""
    asked: list[str] = []

    def hang(what: str) -> Any:
        asked.append(what)
        raise LeaseError("unreachable", "broker 2: timed out")

    monkeypatch.setattr(quarantine, "quarantine_replica", lambda *_: hang("quarantine"))
    monkeypatch.setattr(quarantine, "partition_status", lambda *_: hang("status"))
    monkeypatch.setattr(quarantine, "LOOK_S", 0.3)
    brokers = {2: BrokerHttp(2, "h:1", "secret")}
    found = [quarantine.Suspect(TopicPartition("t", number), 2, "crc") for number in range(50)]
    rows = quarantine.set_aside(found, brokers, lambda _: None)
    assert [row["refused"] for row in rows] == ["broker 2: timed out"] * 50
    assert asked == ["quarantine"]
    rows = [{"partition": f"t-{number}", "replica": 2, "refused": None} for number in range(50)]
    quarantine.wait_in_sync(rows, brokers, 0.1)
    assert [row["in_sync"] for row in rows] == [False] * 50
    assert asked == ["quarantine", "status"]
