"""One group coordinator whose commits, plain and in transactions, a test makes one by one.

world = await CommittingWorld(MemoryOffsetsLog(1)).led()
await world.pend(5)  # in a transaction
world.end(committed=True)  # its marker is written and replicated
await world.agrees({"t": 5})  # it serves that, and so would the next coordinator
"""

import asyncio
import itertools
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership
from logyard.broker.groups.events import Committer, OffsetCommit
from logyard.broker.groups.ports import Producer
from logyard.broker.groups.runner import GroupCoordinator
from tests.support.memory_offsets_log import MemoryOffsetsLog

RETENTION_MS = 7 * 86_400_000
PID = 7
Offsets = dict[str, int]
"""What is committed, by topic; -1 stands for what is only pending."""


class CommittingWorld:
    """One coordinator of all partitions of an offsets log, whose acknowledgements the test gives if it is `held`."""

    def __init__(self, log: MemoryOffsetsLog) -> None:
        self.log = log
        self.clock = ManualClock()
        ids = itertools.count()
        self.groups = GroupCoordinator(
            self.log,
            self.clock,
            asyncio.get_running_loop().call_later,
            lambda: str(next(ids)),
            membership.Rules(initial_delay_ms=0),
            RETENTION_MS,
        )

    async def led(self) -> "CommittingWorld":
        for partition in range(self.log.partition_count):
            self.groups.on_leader(partition)
        await turns()
        return self

    async def commit(self, offset: int, topic: str = "t", group: str = "g", **more: Any) -> ErrorCode:
        commit = OffsetCommit(topic, 0, offset, commit_ms=self.clock.now_ms(), **more)
        return (await self.groups.commits.commit(group, "", None, -1, [commit]))[0]

    async def pend(self, offset: int, topic: str = "t", group: str = "g", pid: int = PID, **who: Any) -> ErrorCode:
        commit = OffsetCommit(topic, 0, offset, commit_ms=self.clock.now_ms())
        commits = self.groups.commits
        return (await commits.commit_in_transaction(group, Committer(**who), Producer(pid, 0), [commit]))[0]

    def end(self, pid: int = PID, *, committed: bool = True, partition: int = 0) -> None:
        """The marker is written and replicated."""
        at = self.log.end_transaction(partition, pid, committed=committed)
        self.groups.commits.end_transaction(partition, pid, at, committed=committed)

    def fetched(self, topic: str = "t", group: str = "g", *, stable: bool = False) -> tuple[ErrorCode, int]:
        code, [(own, found)] = self.groups.commits.fetch(group, {(topic, 0)}, require_stable=stable)
        assert code is ErrorCode.NONE
        return own, found.offset

    def all(self, group: str = "g") -> Offsets:
        """What is committed; -1 stands for what is only pending."""
        found = self.groups.commits.fetch(group, None)[1]
        offsets = {commit.topic: commit.offset for _, commit in found}
        kept = next((g for g in self.groups.list_groups()[1] if g.group_id == group), None)
        pending = {} if kept is None else kept.offsets.open
        return {topic: -1 for commits in pending.values() for topic, _ in commits} | offsets

    def names(self) -> list[str]:
        return sorted(group.group_id for group in self.groups.list_groups()[1])

    async def read_again(self, group: str = "g") -> Offsets:
        """What the next coordinator reads."""
        second = await CommittingWorld(self.log).led()
        try:
            return second.all(group)
        finally:
            await second.groups.close()

    async def agrees(self, expected: Offsets, group: str = "g") -> None:
        assert self.all(group) == expected
        assert await self.read_again(group) == expected


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
