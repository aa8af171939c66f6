"""Leases of a plan, kept by the driver while Spark works, however long nobody reads."""

import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs.data_source.batch import LogyardReader
from logyard.spark_jobs.leases import keeper
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.leases.client import Lease, acquire
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.leases.keeper import IDLE_S, KEPT_S, Keeper, Stopped, hand_over
from tests.support.batches import Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition


class World:
    """A keeper whose clock and Spark are the test's."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker, self.now, self.working, self.stopped = broker, 1000.0, True, False
        self.keeper = Keeper(self._is_working, lambda: self.now)

    def _is_working(self) -> bool:
        if self.stopped:
            raise Stopped
        return self.working

    def lease(self, run: str = "r") -> Lease:
        http = BrokerHttp(1, self.broker.address, self.broker.token)
        return acquire(http, "t", 0, run, "export", 60_000)

    def passes(self, seconds: float, step: float = 20.0) -> None:
        for _ in range(round(seconds / step)):
            self.now += step
            self.keeper.look()

    def beaten(self) -> int:
        return sum(request.endswith("/heartbeat") for request in self.broker.requests)

    def states(self) -> list[str]:
        return [lease["state"] for lease in self.broker.leases.values()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    directory = write_partition(tmp_path, "t-0", [[batch([Rec(0, b"k", b"v")])]])
    with FakeBroker(1, {("t", 0): FakeReplica(directory, True, isr=(1,))}) as fake:
        made = World(fake)
        yield made
        made.keeper.close()


def test_they_live_while_any_job_runs_and_end_a_minute_later(world: World) -> None:
    hand_over(world.keeper.directory, [world.lease("a"), world.lease("b")], 60_000)
    world.passes(7200)
    assert world.states() == ["active", "active"]
    assert world.beaten() == pytest.approx(2 * 7200 / 20, abs=4)
    assert os.listdir(world.keeper.directory) == []
    world.working = False
    world.passes(IDLE_S)
    assert world.states() == ["active", "active"]
    world.passes(40)
    assert world.states() == ["aborted", "aborted"]
    before = world.beaten()
    world.passes(200)
    assert world.beaten() == before


def test_a_plan_has_a_minute_until_its_job_begins(world: World) -> None:
    world.working = False
    world.passes(600)
    hand_over(world.keeper.directory, [world.lease()], 60_000)
    world.passes(40)
    assert world.states() == ["active"]
    world.working = True
    world.passes(600)
    assert world.states() == ["active"]


def test_a_stream_beside_it_does_not_keep_them_for_ever(world: World) -> None:
    hand_over(world.keeper.directory, [world.lease()], 60_000)
    world.passes(KEPT_S + 7200, step=3600)
    assert world.states() == ["aborted"]


def test_they_end_with_spark(world: World) -> None:
    hand_over(world.keeper.directory, [world.lease("a")], 60_000)
    world.keeper.look()
    hand_over(world.keeper.directory, [world.lease("b")], 60_000)
    world.keeper.close()
    assert world.states() == ["aborted", "aborted"]
    assert not os.path.exists(world.keeper.directory)
    hand_over(world.keeper.directory, [world.lease("c")], 60_000)  # nobody is there: nothing is raised


def test_nobody_else_can_read_the_tokens(world: World) -> None:
    hand_over(world.keeper.directory, [world.lease()], 60_000)
    assert stat.S_IMODE(os.stat(world.keeper.directory).st_mode) == 0o700


def test_trouble_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keeper, "POLL_S", 0.005)
    Path(world.keeper.directory, "0.json").write_text("{")
    hand_over(world.keeper.directory, [world.lease()], 30)
    world.keeper.start()
    deadline = time.monotonic() + 20
    while world.beaten() < 3:
        world.now += 1
        assert time.monotonic() < deadline, capsys.readouterr().err
        time.sleep(0.01)
    assert "leases: keeping them failed: JSONDecodeError" in capsys.readouterr().err
    world.stopped = True
    while world.states() != ["aborted"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_plan_hands_its_leases_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from logyard.spark_jobs.cluster import Cluster
    from logyard.spark_jobs.metadata import Metadata, PartitionMetadata

    http = {1: BrokerHttp(1, world.broker.address, world.broker.token)}
    cluster = Cluster(Metadata("fake", (1,), {"t": {0: PartitionMetadata(1, (1,), (1,))}}), http)

    def connect(arguments: Any) -> Cluster:
        cluster.ttl_ms = arguments.lease_ttl_s * 1000
        return cluster

    monkeypatch.setattr("logyard.spark_jobs.cluster.connect", connect)
    reader = LogyardReader(["offset"], {"subscribe": "t", "leaseTtlS": "30"}, world.keeper.directory)
    partitions = reader.partitions()
    world.passes(600)
    assert world.beaten() == pytest.approx(600 / 20, abs=3)
    assert [row["offset"] for p in partitions for rows in reader.read(p) for row in rows.to_pylist()] == [0]


def test_a_broker_that_hangs_does_not_cost_other_plans_their_leases(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, each plan with a lease there waited for it before the next was renewed."""
    everybody = threading.Barrier(3)
    beaten: list[int] = []
    monkeypatch.setattr(Heartbeats, "beat", lambda beats: beaten.append(everybody.wait(20)))
    for run in ("a", "b", "c"):
        hand_over(world.keeper.directory, [world.lease(run)], 60_000)
    world.keeper.look()
    world.passes(20)
    assert sorted(beaten) == [0, 1, 2]


def test_living_plans_are_renewed_before_others_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(Heartbeats, "beat", lambda beats: order.append("renewed"))
    monkeypatch.setattr(keeper, "end_run", lambda leases, reason: order.append("ended") if leases else None)
    hand_over(world.keeper.directory, [world.lease("old")], 60_000)
    world.keeper.look()
    world.working = False
    world.now += IDLE_S
    hand_over(world.keeper.directory, [world.lease("new")], 60_000)
    world.keeper.look()
    order.clear()
    world.passes(20)
    assert order == ["renewed", "ended"]
