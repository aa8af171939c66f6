"""Leases kept alive from the driver, whatever single brokers do."""

import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import Lease, acquire
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from tests.support.batches import Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FakeBroker]:
    directory = write_partition(tmp_path, "t-0", [[batch([Rec(0, b"k", b"v")])]])
    with FakeBroker(1, {("t", 0): FakeReplica(directory, True, isr=(1,))}) as fake:
        yield fake


def taken(broker: FakeBroker, run: str = "r") -> Lease:
    return acquire(BrokerHttp(1, broker.address, broker.token), "t", 0, run, "export")


def beaten(broker: FakeBroker) -> int:
    return sum(request.endswith("/heartbeat") for request in broker.requests)


def until(look: Any) -> None:
    deadline = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_broker_that_hangs_does_not_cost_the_others_their_leases(broker: FakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # it takes connections and never answers
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        good = taken(broker)
        hung = [replace(good, lease_id=f"h{n}", broker=BrokerHttp(2, address, "t")) for n in range(5)]
        beats = Heartbeats([*hung, good])
        thread = threading.Thread(target=beats.beat, daemon=True)
        thread.start()
        until(lambda: beaten(broker) == 1)
        assert thread.is_alive(), "the other broker was not waited for"


def test_what_a_beat_takes_does_not_put_the_next_one_off(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the time to live, and on top of it as long as a broker does not answer, may be all of that time."""
    good = taken(broker)
    slow = replace(good, lease_id="slow", broker=replace(good.broker, broker_id=2))
    begun: list[float] = []

    def heartbeat(self: Lease) -> dict[str, Any]:
        if self.lease_id == "slow":
            time.sleep(1.0)
        else:
            begun.append(time.monotonic())
        return {}

    monkeypatch.setattr(Lease, "heartbeat", heartbeat)
    with Heartbeats([slow, good], ttl_ms=1500):
        until(lambda: len(begun) == 4)
    assert min(later - earlier for earlier, later in pairwise(begun)) < 1.3


def test_what_does_not_answer_is_silent_until_it_does(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = taken(broker)
    leases = [lease]
    beats = Heartbeats(leases)
    asked: list[str] = []

    def away(self: Lease) -> dict[str, Any]:
        asked.append(self.lease_id)
        raise LeaseError("unreachable", "no route")

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "heartbeat", away)
        leases.append(replace(lease, lease_id="second"))
        beats.beat()
        assert asked == [lease.lease_id], "of a broker that does not answer, one lease is asked for"
        assert sorted(beats.silent) == sorted([lease.lease_id, "second"])
    leases.pop()
    beats.beat()
    assert lease.lease_id not in beats.silent
    assert beats.lost == {}


def test_no_exception_ends_the_beats(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = taken(broker)
    real, fails = Lease.heartbeat, [CorruptData("odd"), ValueError("odder"), RuntimeError("oddest")]

    def failing(self: Lease) -> dict[str, Any]:
        if fails:
            raise fails.pop()
        return real(self)

    monkeypatch.setattr(Lease, "heartbeat", failing)
    with Heartbeats([lease], ttl_ms=30) as beats:
        until(lambda: not fails)
        assert beats.lost == {lease.lease_id: "odd"}
        beats.lost.clear()
        until(lambda: beaten(broker) > 2)


def test_who_does_not_answer_can_be_asked_while_brokers_come_and_go() -> None:
    """It is changed by the thread that beats: a look in the middle of that ended an export."""
    beats = Heartbeats([])
    beats.silent.update({f"l{n}": (0.0, "timed out") for n in range(2000)})
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            # Another thread has its turn between two rounds.
            if beats.silent.pop("l", None) is None:
                beats.silent["l"] = 0.0, "timed out"

    thread, interval = threading.Thread(target=come_and_go, daemon=True), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(300):
            assert beats.unanswered()["l7"] == "timed out"
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
