"""A damaged follower is set aside: only out of the ISR, never the leader, and nothing of it is deleted."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.leases import quarantine
from logyard.broker.log import layout
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import BrokerInfo, Endpoint
from tests.support.lease_world import ROOT, TP, LeaseWorld, fill
from tests.support.logs import content

PATH = f"/partitions/{TP.topic}/{TP.partition}/quarantine"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "LOOK_S", 0)


class Fetchers:
    """Notes what is asked of the fetchers."""

    def __init__(self) -> None:
        self.following: set[Any] = set()

    def start(self, partitions: Any) -> None:
        self.following |= {p.tp for p in partitions}

    def stop(self, partitions: Any) -> None:
        self.following -= set(partitions)

    def refresh_topic_ids(self, partitions: Any) -> None: ...

    failed_count = 0


def isr_is(world: LeaseWorld, *isr: int, leader: int = 2) -> None:
    """What the controller tells everyone of the ISR."""
    brokers = tuple(BrokerInfo(n, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9090 + n),)) for n in (1, 2))
    update = PartitionUpdate(TP, leader, 1, isr, (1, 2), partition_epoch=5)
    world.metadata.apply_update(UpdateMetadata(1, 1, 1, (update,), brokers))


def follower(world: LeaseWorld) -> tuple[Any, Fetchers]:
    """Broker 1 with a log of a few segments, then following broker 2."""
    log = world.lead()
    fill(log, 24)
    fetchers = Fetchers()
    world.replicas.use_fetchers(fetchers)
    world.lead(leader_epoch=1, leader=2)
    assert fetchers.following == {TP}
    return log, fetchers


async def turns(world: LeaseWorld, seconds: float) -> None:
    """Let the broker look for so long."""
    for _ in range(10):
        world.clock.advance(seconds / 10)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_follower_leaves_the_isr_before_anything_is_touched() -> None:
    async with LeaseWorld() as world:
        log, fetchers = follower(world)
        await world.store.set_cleaner_offset(TP, 30)
        lease = await world.take("audit")
        before = content(log)
        asked = asyncio.create_task(world.call("POST", PATH, {"reason": "a checksum\nis wrong"}))
        await turns(world, 20)
        led = world.replicas.partition(TP)
        assert led is not None
        assert led.leaves_isr, "it lags, so that the leader puts it out"
        assert world.store.logs.get(TP) is log
        assert (await world.refusal("POST", PATH, {}))[1] == "quarantine_in_progress"
        isr_is(world, 2)
        await turns(world, quarantine.SETTLE_S - 1)
        assert world.store.logs.get(TP) is log, "news of an ISR may be old"
        await turns(world, 2)
        status, answer = await asked
        assert status == 200, answer
        assert answer["leader"] == 2
        new = world.store.logs.get(TP)
        assert new is not None
        assert (new.log_end_offset, new.high_watermark) == (0, 0)
        partition = world.replicas.partition(TP)
        assert partition is not None
        assert (fetchers.following, partition.leaves_isr) == ({TP}, False), "and begins anew"
        assert partition.log is new
        kept = answer["kept"]
        parsed = layout.parse_directory_name(kept.rpartition("/")[2])
        assert parsed == layout.PartitionDirectory(TP, layout.DirectoryKind.STRAY)
        names = sorted(e.name for e in world.disk.list(kept) if e.name.endswith(".log"))
        assert len(names) >= 2
        data = b"".join(world.disk.open(f"{kept}/{n}").read_at(1 << 20, 0) for n in names)
        assert data == before, "every byte of it is kept"
        assert world.store.cleaner_offset(TP) is None
        assert (await world.ok("GET", f"/leases/{lease['lease_id']}"))["state"] == "lost"
        assert (await world.ok("GET", "/partitions"))["strays"] == [kept]


async def test_what_was_set_aside_stays_over_a_restart() -> None:
    async with LeaseWorld() as world:
        follower(world)
        isr_is(world, 2)
        asked = asyncio.create_task(world.ok("POST", PATH, {}))
        await turns(world, quarantine.SETTLE_S + 1)
        kept = (await asked)["kept"]
    again = LeaseWorld(world.disk)
    async with again:
        assert again.disk.exists(kept)
        assert again.store.logs.get(TP) is not None
        assert again.store.logs.get(TP).log_end_offset == 0  # type: ignore[union-attr]  # it is not None


async def test_never_the_leader_and_never_one_that_is_needed() -> None:
    async with LeaseWorld() as world:
        world.lead()
        assert (await world.refusal("POST", PATH, {}))[1] == "is_leader"
        world.lead(leader_epoch=1, leader=2)
        isr_is(world, 1)
        assert (await world.refusal("POST", PATH, {}))[1] == "needed_in_isr"
        isr_is(world, 1, leader=-1)
        assert (await world.refusal("POST", PATH, {}))[1] == "no_leader"
        assert (await world.refusal("POST", "/partitions/absent/0/quarantine", {}))[1] == "unknown_partition"
        assert (await world.refusal("POST", PATH, {"reason": 5}))[1] == "invalid_request"
        assert [e.name for e in world.disk.list(ROOT) if e.is_directory] == [str(TP)]


async def test_min_insync_replicas_counts_without_it() -> None:
    async with LeaseWorld() as world:
        log, _ = follower(world)
        log.config = replace(log.config, min_insync_replicas=2)
        assert (await world.refusal("POST", PATH, {}))[1] == "needed_in_isr"


async def test_one_that_becomes_leader_meanwhile_is_left_alone_and_goes_on() -> None:
    async with LeaseWorld() as world:
        log, _ = follower(world)
        asked = asyncio.create_task(world.refusal("POST", PATH, {}))
        await turns(world, 3)
        world.lead(leader_epoch=2, leader=1)
        await turns(world, 3)
        assert (await asked)[1] == "is_leader"
        assert world.store.logs.get(TP) is log


async def test_one_of_a_topic_that_is_made_anew_meanwhile_is_left_alone() -> None:
    async with LeaseWorld() as world:
        _, fetchers = follower(world)
        asked = asyncio.create_task(world.refusal("POST", PATH, {}))
        await turns(world, 3)
        world.delete()
        new = world.lead(leader=2)
        assert fetchers.following == {TP}
        isr_is(world, 2)
        await turns(world, 20)
        assert await asked == (404, "unknown_partition")
        assert world.store.logs.get(TP) is new
        partition = world.replicas.partition(TP)
        assert partition is not None
        assert (fetchers.following, partition.leaves_isr) == ({TP}, False)


async def test_one_that_stays_in_the_isr_is_followed_again() -> None:
    async with LeaseWorld() as world:
        log, fetchers = follower(world)
        asked = asyncio.create_task(world.refusal("POST", PATH, {}))
        await turns(world, 200)
        assert (await asked)[1] == "still_in_isr"
        assert world.store.logs.get(TP) is log
        partition = world.replicas.partition(TP)
        assert partition is not None
        assert (fetchers.following, partition.leaves_isr) == ({TP}, False)
