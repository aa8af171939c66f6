from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs.audit.findings import BAD, WARN
from logyard.spark_jobs.audit.replica_state import standing_findings, stray_findings
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.leases.client import acquire
from logyard.spark_jobs.segments.replicas import Replica, of_leased
from tests.support.batches import Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

LOG = [[batch([Rec(i, b"k", b"v") for i in range(10)])]]


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Replica]]:
    with ExitStack() as stack:
        found = []
        for broker_id in (1, 2):
            directory = write_partition(tmp_path / str(broker_id), "t-0", LOG)
            fake = FakeBroker(broker_id, {("t", 0): FakeReplica(directory, broker_id == 1, isr=(1, 2))})
            stack.enter_context(fake)
            found.append(of_leased(acquire(BrokerHttp(broker_id, fake.address, fake.token), "t", 0, "r", "audit")))
        yield found


def judged(*replicas: Replica) -> list[tuple[str, str, int]]:
    return [(f.level, f.check, f.replica) for f in standing_findings(replicas)]


def test_sound_replicas_stand(replicas: list[Replica]) -> None:
    assert judged(*replicas) == []


@pytest.mark.parametrize("name", ["high_watermark", "log_start_offset", "clean_offset"])
def test_no_offset_lies_beyond_the_log(replicas: list[Replica], name: str) -> None:
    leader, follower = replicas
    beyond: dict[str, Any] = {name: 11}
    at_the_end: dict[str, Any] = {name: 10}
    assert judged(replace(leader, **beyond), follower) == [(BAD, "checkpoint", 1)]
    assert judged(replace(leader, **at_the_end), follower) == []


def test_a_recovery_point_beyond_the_log(replicas: list[Replica]) -> None:
    leader, follower = replicas
    assert leader.lease is not None
    beyond = replace(leader.lease, details={**leader.lease.details, "recovery_point": 11})
    assert judged(replace(leader, lease=beyond), follower) == [(BAD, "checkpoint", 1)]


def test_followers_are_held_against_the_leader(replicas: list[Replica]) -> None:
    leader, follower = replicas
    assert leader.lease is not None
    assert judged(leader, replace(follower, topic_id="other")) == [(BAD, "topic", 2)]
    short = replace(leader, log_end_offset=8, high_watermark=8)
    assert judged(follower, short) == [(BAD, "watermark", 2)], "what was acknowledged is gone"
    assert judged(short, follower) == [], "the follower was looked at later: records may have come in between"
    alone = replace(leader.lease, details={**leader.lease.details, "isr": [1]})
    assert judged(replace(leader, lease=alone), follower) == [(WARN, "isr", 2)]
    assert judged(follower) == [(WARN, "leader", 2)]


def test_strays_are_named() -> None:
    (found,) = stray_findings(3, ["/data/3/odd"])
    assert (found.level, found.replica, found.file) == (WARN, 3, "/data/3/odd")
