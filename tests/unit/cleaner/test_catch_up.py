"""A replica that was away while a job compacted the others asks its leader, and applies what was decided."""

import json
from typing import Any

import pytest

from logyard.broker import tasks
from logyard.broker.cleaner.catch_up import CatchUp, CatchUpPorts
from logyard.broker.client.http_get import NoAnswer
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from tests.support.cleaning_world import Worker
from tests.support.lease_world import TP, LeaseWorld, commit_body, fill, latest
from tests.support.logs import content


class Pair:
    """A leader that a job has compacted, and its follower with the same records, in segments cut elsewhere."""

    def __init__(self) -> None:
        self.leader = LeaseWorld()
        self.follower = LeaseWorld(MemoryDisk())
        self.asked: list[str] = []
        self.reachable = True
        self.leader_id: int | None = 2

    async def __aenter__(self) -> "Pair":
        await self.leader.__aenter__()
        await self.follower.__aenter__()
        self.worker = Worker(self.follower)
        self.catch_up = CatchUp(
            CatchUpPorts(
                logs=self.follower.store.logs.all_current,
                find=self.follower.store.logs.get,
                clean_offset=self.follower.leases.clean_offset,
                is_held=self.follower.leases.book.is_being_compacted,
                leader_of=lambda tp: self.leader_id,
                ask=lambda broker_id, path: self.ask(broker_id, path),
                lease_service=self.follower.lease_service,
                clock=self.follower.clock,
                open_worker=lambda: self.worker,
                bytes_per_second=lambda: 1e9,
            )
        )
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.leader.__aexit__(*exc)
        await self.follower.__aexit__(*exc)

    async def ask(self, broker_id: int, path: str) -> bytes:
        assert broker_id == 2
        self.asked.append(path)
        if not self.reachable:
            raise NoAnswer("down")
        response = await self.leader.http.get(path, headers={"authorization": ""})
        assert response.status_code == 200
        return response.content

    async def compact_leader(self) -> Any:
        lease = await self.leader.take()
        decision, parts = await self.leader.compaction(lease)
        await self.leader.put_all(lease, parts)
        body = commit_body(lease, decision, parts)
        body["decision"] = decision.to_commit()
        await self.leader.ok("POST", f"/leases/{lease['lease_id']}/commit", body)
        return decision


def records_of(log: PartitionLog) -> list[Record]:
    data = memoryview(content(log))
    return [record for position, _ in batch.iter_headers(data) for record in batch.records(data, position)]


def filled(world: LeaseWorld, batches: int, leader: int = 1) -> Any:
    log = world.lead(leader=leader)
    fill(log, batches)
    return log


async def test_what_was_missed_is_applied_once_and_kept() -> None:
    async with Pair() as pair:
        ours = filled(pair.leader, 60)
        theirs = filled(pair.follower, 60)
        before = latest(content(theirs))
        decision = await pair.compact_leader()
        assert await pair.catch_up.look(pair.worker) == 1
        assert latest(content(theirs)) == before == latest(content(ours))
        assert pair.follower.store.cleaner_offset(TP) == decision.range_end
        assert records_of(theirs) == records_of(ours), "the same decision keeps the same records"
        assert pair.follower.leases.decisions[TP].sha256 == decision.sha256
        assert await pair.catch_up.look(pair.worker) == 0
        assert pair.asked == ["/decisions", "/decisions/t/0", "/decisions"]


async def test_what_lies_in_the_active_segment_is_left_for_later() -> None:
    async with Pair() as pair:
        filled(pair.leader, 60)
        theirs = pair.follower.lead()
        theirs.config = pair.follower.config.__class__(
            cleanup_policy=frozenset({"compact"}), segment_bytes=4100, file_delete_delay_ms=0
        )
        fill(theirs, 60)
        decision = await pair.compact_leader()
        assert theirs.segments.active.base_offset < decision.range_end
        expected = latest(content(theirs))
        assert await pair.catch_up.look(pair.worker) == 1
        assert pair.follower.store.cleaner_offset(TP) == theirs.segments.active.base_offset
        assert latest(content(theirs)) == expected
        assert await pair.catch_up.look(pair.worker) == 0
        theirs.roll(theirs.log_end_offset, pair.follower.clock.now_ms())
        assert await pair.catch_up.look(pair.worker) == 1
        assert pair.follower.store.cleaner_offset(TP) == decision.range_end
        assert latest(content(theirs)) == expected


async def test_nothing_is_done_before_all_of_it_is_here_and_committed() -> None:
    async with Pair() as pair:
        filled(pair.leader, 60)
        theirs = filled(pair.follower, 60)
        decision = await pair.compact_leader()
        theirs.high_watermark = decision.range_end - 1
        assert await pair.catch_up.look(pair.worker) == 0
        theirs.high_watermark = decision.range_end
        lease = await pair.follower.take()
        assert await pair.catch_up.look(pair.worker) == 0, "a run holds it"
        await pair.follower.ok("POST", f"/leases/{lease['lease_id']}/abort", {"generation": lease["generation"]})
        assert await pair.catch_up.look(pair.worker) == 1


async def test_what_goes_wrong_with_one_log_keeps_no_other_from_its_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Pair() as pair:
        filled(pair.leader, 60)
        filled(pair.follower, 60)
        decision = await pair.compact_leader()
        asked = pair.ask
        (row,) = json.loads(await asked(2, "/decisions"))["decisions"]
        offered = json.dumps({"decisions": [row | {"sha256": "0" * 64}, row]}).encode()
        wrong = [FileNotFoundError("a segment that somebody removed")]

        async def ask(broker_id: int, path: str) -> bytes:
            if path == "/decisions":
                return offered
            if wrong:
                raise wrong.pop()
            return await asked(broker_id, path)

        monkeypatch.setattr(pair, "ask", ask)
        before = tasks.failures["catch up"]
        assert await pair.catch_up.look(pair.worker) == 1
        assert tasks.failures["catch up"] == before + 1
        assert pair.follower.store.cleaner_offset(TP) == decision.range_end


async def test_a_leader_that_does_not_answer_or_talks_nonsense_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Pair() as pair:
        filled(pair.leader, 60)
        filled(pair.follower, 60)
        await pair.compact_leader()
        pair.reachable = False
        assert await pair.catch_up.look(pair.worker) == 0
        pair.reachable = True
        told = await pair.ask(2, "/decisions")
        (row,) = json.loads(told)["decisions"]
        asked = pair.ask

        for nonsense in (b"", b"[]", b'{"decisions": [{}]}', told.replace(row["sha256"].encode(), b"0" * 64)):

            async def ask(broker_id: int, path: str, nonsense: bytes = nonsense) -> bytes:
                return nonsense if path == "/decisions" else await asked(broker_id, path)

            monkeypatch.setattr(pair, "ask", ask)
            assert await pair.catch_up.look(pair.worker) == 0
        monkeypatch.undo()
        assert await pair.catch_up.look(pair.worker) == 1


async def test_replicas_without_a_leader_elsewhere_ask_nobody() -> None:
    async with Pair() as pair:
        filled(pair.follower, 60)
        pair.leader_id = None
        assert await pair.catch_up.look(pair.worker) == 0
        assert pair.asked == []
        pair.catch_up.on_deleted(TopicPartition("t", 0))
