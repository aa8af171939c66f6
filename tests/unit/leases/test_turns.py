"""What very many leases, groups or directories take of the event loop: a little in each turn."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from logyard.broker import portions
from logyard.broker.leases import replica_status
from logyard.broker.leases.book import LeaseError
from logyard.broker.leases.decisions import KeptDecision
from logyard.broker.leases.requests import CommitRequest
from logyard.broker.model import TopicPartition
from tests.support.lease_world import COMPACTED, ROOT, LeaseWorld, fill

SHA = "0" * 64


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[int]]:
    """How often others have had a turn, as the only item."""
    found = [0]

    async def count() -> None:
        while True:
            found[0] += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield found
    finally:
        counting.cancel()


def group(*bases: object) -> dict[str, object]:
    return {"segments": list(bases), "part": {"size": 1, "sha256": SHA, "last_offset": 1, "records": 1}}


def commit_of(groups: list[dict[str, object]]) -> dict[str, object]:
    decision = {"sha256": SHA, "range_start": 0, "range_end": 1}
    return {"generation": 1, "leader_epoch": 0, "clean_offset": 1, "decision": decision, "groups": groups}


async def test_the_groups_of_a_commit_are_read_in_turns() -> None:
    """Those of a body of four megabytes took 0.1 s in one."""
    many = 20_000
    async with turns_of_others() as turns:
        request = await CommitRequest.read(commit_of([group(number, number + 1) for number in range(many)]))
    assert [one.segments for one in request.groups] == [(number, number + 1) for number in range(many)]
    assert turns[0] >= 500
    groups = [group(number) for number in range(1000)]
    with pytest.raises(LeaseError, match=r"groups\[999\].segments: base offsets"):
        await CommitRequest.read(commit_of([*groups[:-1], group("x")]))


async def test_leases_are_listed_in_turns_and_encoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone who logs in may ask."""
    async with LeaseWorld() as world:
        for number in range(30):
            world.lead(TopicPartition("tu"[number % 2], number))
        granted = [
            (await world.ok("POST", "/leases", {"topic": t, "partition": n, "run_id": run, "purpose": "export"}))
            for n in range(30)
            for t in "tu"[n % 2]
            for run in ("a", "b")
        ]
        asked, works = [], []
        world.before_work = lambda: works.append(True)
        monkeypatch.setattr(portions, "AT_ONCE", 10)
        async with turns_of_others() as turns:

            def sees(topic: str) -> bool:
                asked.append(turns[0])
                return topic == "u"

            pieces = await world.lease_service.leases_json("b", sees)
        told = json.loads(b"".join(pieces))["leases"]
        assert [one["lease_id"] for one in told] == [
            one["lease_id"] for one in granted if (one["topic"], one["run_id"]) == ("u", "b")
        ]
        assert max(asked.count(turn) for turn in asked) <= 10
        assert works == [True]


async def test_statuses_are_made_in_turns_that_count_their_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may have ten thousand: those of a hundred replicas took half a second in one turn."""
    async with LeaseWorld(config=replace(COMPACTED, segment_bytes=150)) as world:
        for number in range(12):
            fill(world.lead(TopicPartition("t", number)), 60)
        asked: list[int] = []
        monkeypatch.setattr(portions, "AT_ONCE", 30)
        async with turns_of_others() as turns:

            def sees(_topic: str) -> bool:
                asked.append(turns[0])
                return True

            pieces = await world.lease_service.partitions_json(sees, sees_cluster=False)
        rows = json.loads(b"".join(pieces))["partitions"]
        assert [len(row["segments"]) for row in rows] == [60] * 12
        assert max(asked.count(turn) for turn in asked) == 2


async def test_directories_are_compared_with_the_logs_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LeaseWorld() as world:
        logs = [world.lead(TopicPartition("t", number)) for number in range(30)]
        asked: list[int] = []
        monkeypatch.setattr(portions, "AT_ONCE", 10)
        async with turns_of_others() as turns:

            def is_ours(tp: TopicPartition) -> bool:
                asked.append(turns[0])
                return tp.partition != 7

            found = await replica_status.strays([*(log.directory for log in logs), f"{ROOT}/odd"], logs, is_ours)
        assert found == [logs[7].directory, f"{ROOT}/odd"]
        assert max(asked.count(turn) for turn in asked) <= 10


async def test_decisions_are_listed_in_turns_and_encoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each follower asks for them again and again: 20,000 took 0.09 s in one turn."""
    async with LeaseWorld() as world:
        kept = KeptDecision(0, 9, 1, SHA, 10)
        for number in range(30):
            tp = TopicPartition("t", number)
            world.lead(tp)
            world.leases.decisions[tp] = kept
        world.leases.decisions[TopicPartition("elsewhere", 0)] = kept
        works: list[bool] = []
        world.before_work = lambda: works.append(True)
        monkeypatch.setattr(portions, "AT_ONCE", 10)
        async with turns_of_others() as turns:
            pieces = await world.lease_service.decisions_json()
        told = json.loads(b"".join(pieces))["decisions"]
        assert told == [kept.to_json(TopicPartition("t", number)) for number in range(30)]
        assert turns[0] >= 3
        assert works == [True]
