"""Leases of a topic that was deleted and made anew: its commits say nothing of the topic that has its name now."""

import base64
from pathlib import Path
from uuid import UUID

import pytest

from logyard.broker.log.checkpoints import encode_partition_metadata
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.model import ZERO_TOPIC_ID
from tests.support.lease_world import DIRECTORY, LeaseWorld, commit_body, fill, lease_directories, ready_to_commit

FIRST, SECOND = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(("before", "after"), [(FIRST, SECOND), (ZERO_TOPIC_ID, ZERO_TOPIC_ID), (ZERO_TOPIC_ID, FIRST)])
async def test_a_commit_in_an_earlier_topic_of_the_name_is_none_in_this_one(before: UUID, after: UUID) -> None:
    """A job whose answer was lost asks again; where topics have no ids nobody can tell them apart."""
    async with LeaseWorld() as world:
        lease, body, _ = await ready_to_commit(world, topic_id=before)
        path = f"/leases/{lease['lease_id']}"
        answer = await world.ok("POST", f"{path}/commit", body)
        assert await world.ok("POST", f"{path}/commit", body) == answer
        world.delete()
        world.lead(topic_id=after)
        if after != SECOND:
            assert await world.ok("POST", f"{path}/commit", body) == answer
            return
        assert await world.refusal("POST", f"{path}/commit", body) == (404, "unknown_lease")
        assert await world.refusal("GET", path) == (404, "unknown_lease")
        generation = {"generation": lease["generation"]}
        assert await world.refusal("POST", f"{path}/abort", generation) == (404, "unknown_lease")


async def test_a_commit_that_a_restart_finds_in_another_topic_is_forgotten(tmp_path: Path) -> None:
    async with LeaseWorld(OsDisk(), str(tmp_path)) as world:
        lease, body, _ = await ready_to_commit(world, topic_id=FIRST)
        path = f"/leases/{lease['lease_id']}"
        await world.ok("POST", f"{path}/commit", body)
    record = tmp_path / "t-0" / ".leases" / f"{lease['lease_id']}.json"
    async with world:
        assert (await world.ok("GET", path))["state"] == "committed"
        assert record.exists()
    (tmp_path / "t-0" / "partition.metadata").write_bytes(encode_partition_metadata(SECOND))
    async with world:
        assert await world.refusal("GET", path) == (404, "unknown_lease")
        assert not record.exists()


async def test_a_commit_leaves_nothing_in_a_topic_that_was_made_anew_meanwhile() -> None:
    """A thread of it waited for a slow disk: a decision in the new log would be offered to its followers."""
    works = 0
    while True:
        works += 1
        async with LeaseWorld() as world:
            fill(world.lead(topic_id=FIRST), 60)
            lease = await world.take()
            decision, parts = await world.compaction(lease)
            await world.put_all(lease, parts)
            body = commit_body(lease, decision, parts)
            body["decision"] |= {"bytes": base64.b64encode(decision.encode()).decode()}
            left = works

            def late() -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    world.delete()
                    world.lead(topic_id=SECOND)
                    world.disk.make_directory(f"{DIRECTORY}/.leases", within=DIRECTORY)  # of a lease of the new topic

            world.before_work = late
            await world.call("POST", f"/leases/{lease['lease_id']}/commit", body)
            await world.leases.settle()
            if left > 0:
                break
            assert lease_directories(world) == [], f"work {works} came late"
            assert world.leases.decisions == {}, f"work {works} came late"
    assert works > 6
