"""Offsets in transactions: commits, markers, plain commits, deletions and changes of coordinator in any order.

The model follows the log alone: what its records and markers say, in their order. Whatever is in flight, what a
coordinator serves is what the model says of all that was acknowledged, and what the next coordinator would read.
"""

import asyncio
import itertools
import random

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership
from logyard.broker.groups.events import Committer, OffsetCommit
from logyard.broker.groups.ports import Producer
from logyard.broker.groups.runner import GroupCoordinator
from tests.support.memory_offsets_log import MemoryOffsetsLog

GROUPS, TOPICS, PIDS = ("a", "b", "c"), ("t", "u"), (1, 2, 3)
PARTITIONS = 2

Key = tuple[str, str]  # group, topic


class Model:
    """One partition of the offsets log, followed record by record."""

    def __init__(self) -> None:
        self.committed: dict[Key, tuple[int, int]] = {}  # where its record lies, and the offset
        self.pending: dict[int, dict[Key, tuple[int, int]]] = {}

    def plain(self, at: int, key: Key, offset: int | None) -> None:
        if offset is None:
            self.committed.pop(key, None)
        else:
            self.committed[key] = at, offset

    def in_transaction(self, at: int, pid: int, key: Key, offset: int) -> None:
        self.pending.setdefault(pid, {})[key] = at, offset

    def end(self, pid: int, *, committed: bool) -> None:
        for key, (at, offset) in self.pending.pop(pid, {}).items():
            if committed and self.committed.get(key, (-1, -1))[0] < at:
                self.committed[key] = at, offset

    def is_pending(self, key: Key) -> bool:
        return any(key in commits for commits in self.pending.values())


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = MemoryOffsetsLog(PARTITIONS)
        self.groups = self.coordinator()
        self.models = [Model() for _ in range(PARTITIONS)]
        self.numbers = itertools.count(1)
        self.running: list[asyncio.Task[None]] = []

    def coordinator(self) -> GroupCoordinator:
        ids = itertools.count()
        rules = membership.Rules(initial_delay_ms=0)
        call_later = asyncio.get_running_loop().call_later
        return GroupCoordinator(self.log, ManualClock(), call_later, lambda: str(next(ids)), rules, 7 * 86_400_000)

    async def run(self, steps: int) -> None:
        await self.lead(self.groups)
        for _ in range(steps):
            await self.step()
            if not self.log.waiting:
                self.check(self.groups)
        self.log.acknowledge_all()
        await turns()
        self.check(self.groups)
        second = self.coordinator()
        await self.lead(second)
        self.check(second)
        for coordinator in (self.groups, second):
            await coordinator.close()
        await asyncio.gather(*self.running)

    async def lead(self, groups: GroupCoordinator) -> None:
        for partition in range(PARTITIONS):
            groups.on_leader(partition)
        await turns()

    async def step(self) -> None:
        group, topic, pid = self.chance.choice(GROUPS), self.chance.choice(TOPICS), self.chance.choice(PIDS)
        partition = self.groups.partition_for(group)
        self.log.held = self.chance.random() < 0.5
        match self.chance.randrange(12):
            case 0 | 1 | 2 | 3:
                await self.start(self.commit_in_transaction(partition, group, topic, pid))
            case 4 | 5:
                await self.start(self.commit(partition, group, topic))
            case 6 | 7:
                await self.end(self.chance.randrange(PARTITIONS), pid)
            case 8:
                await self.acknowledge_all()
                await self.delete_offsets(partition, group, topic)
            case 9:
                await self.acknowledge_all()
                self.groups.on_follower(partition)
                self.groups.on_leader(partition)
                await turns()
            case 10:
                await self.start(self.refused(partition, group, topic, pid))
            case _ if self.log.waiting:
                self.log.acknowledge()
                await turns()
            case _:
                pass

    async def start(self, work: "asyncio.Future[None] | object") -> None:
        self.running.append(asyncio.ensure_future(work))  # type: ignore[arg-type]
        await turns()

    async def acknowledge_all(self) -> None:
        self.log.acknowledge_all()
        await turns()
        self.log.held = False

    # What is asked

    async def commit_in_transaction(self, partition: int, group: str, topic: str, pid: int) -> None:
        offset, at = next(self.numbers), len(self.log.partitions.get(partition, ()))
        self.models[partition].in_transaction(at, pid, (group, topic), offset)
        commits = [OffsetCommit(topic, 0, offset)]
        codes = await self.groups.commits.commit_in_transaction(group, Committer(), Producer(pid, 0), commits)
        assert codes[0] in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def refused(self, partition: int, group: str, topic: str, pid: int) -> None:
        self.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
        work = self.groups.commits.commit_in_transaction(
            group, Committer(), Producer(pid, 0), [OffsetCommit(topic, 0, next(self.numbers))]
        )
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        self.log.failing = ErrorCode.NONE
        if self.log.held:
            self.log.waiting.pop().set_result(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await task == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    async def commit(self, partition: int, group: str, topic: str) -> None:
        offset, at = next(self.numbers), len(self.log.partitions.get(partition, ()))
        self.models[partition].plain(at, (group, topic), offset)
        assert await self.groups.commits.commit(group, "", None, -1, [OffsetCommit(topic, 0, offset)])

    async def delete_offsets(self, partition: int, group: str, topic: str) -> None:
        if (await self.groups.commits.delete_offsets(group, [(topic, 0)]))[0] is ErrorCode.NONE:
            self.models[partition].plain(-1, (group, topic), None)

    async def end(self, partition: int, pid: int) -> None:
        """A marker, replicated when all before it is."""
        committed = self.chance.random() < 0.6
        at = self.log.end_transaction(partition, pid, committed=committed)
        await self.acknowledge_all()
        self.models[partition].end(pid, committed=committed)
        self.groups.commits.end_transaction(partition, pid, at, committed=committed)

    def check(self, groups: GroupCoordinator) -> None:
        for group, topic in itertools.product(GROUPS, TOPICS):
            model, key = self.models[groups.partition_for(group)], (group, topic)
            expected = model.committed.get(key, (-1, -1))[1]
            assert next(iter(groups.commits.fetch(group, {(topic, 0)})[1]))[1].offset == expected
            code = next(iter(groups.commits.fetch(group, {(topic, 0)}, require_stable=True)[1]))[0]
            assert (code is ErrorCode.UNSTABLE_OFFSET_COMMIT) == model.is_pending(key)
        known = {g.group_id for g in groups.list_groups()[1]}
        for name in GROUPS:
            model = self.models[groups.partition_for(name)]
            has = any(key[0] == name for key in model.committed) or any(model.is_pending((name, t)) for t in TOPICS)
            assert not has or name in known


async def turns() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


@pytest.mark.parametrize("first_seed", range(0, 60, 10))
async def test_every_coordinator_serves_what_the_log_says(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        await History(seed).run(120)
