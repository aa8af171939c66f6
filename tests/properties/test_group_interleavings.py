"""Joins, commits, deletions, expiry and changes of coordinator, each starting at any await of the others.

In any order: an acknowledged commit stays until it is deleted or expires, a member that was answered is in its group,
and the next coordinator would read from the log exactly what is served.
"""

import asyncio
import itertools
import random
from typing import Any

import structlog.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import loading, membership, record_format
from logyard.broker.groups.events import Join, Joined, Leaver, OffsetCommit, Sync
from logyard.broker.groups.runner import GroupCoordinator
from tests.support.lengths import examples
from tests.support.memory_offsets_log import MemoryOffsetsLog

DAY_S = 86_400.0
RETENTION_MS = 7 * 86_400_000
SESSION_MS = 30 * 60_000
GROUPS = ("a", "b")
TOPICS = ("t", "u")


class Timers:
    """Timers of the manual clock: due ones are called when the clock is advanced."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._due: dict[int, tuple[float, Any]] = {}

    def call_later(self, delay: float, callback: Any) -> "Timer":
        number = next(self._numbers)
        self._due[number] = self._clock.monotonic() + delay, callback
        return Timer(self, number)

    def cancel(self, number: int) -> None:
        self._due.pop(number, None)

    def fire(self) -> None:
        for number, (when, callback) in sorted(self._due.items(), key=lambda entry: entry[1][0]):
            if when <= self._clock.monotonic() and self._due.pop(number, None) is not None:
                callback()


class Timer:
    def __init__(self, timers: Timers, number: int) -> None:
        self._timers, self._number = timers, number

    def cancel(self) -> None:
        self._timers.cancel(self._number)


class History:
    """One coordinator, the requests to it, and what it promised by its answers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = MemoryOffsetsLog(1)
        self.log.held = True
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        ids = itertools.count()
        self.groups = GroupCoordinator(
            self.log,
            self.clock,
            self.timers.call_later,
            lambda: str(next(ids)),
            membership.Rules(initial_delay_ms=0),
            RETENTION_MS,
        )
        self.numbers = itertools.count(1)
        self.running: set[asyncio.Task[None]] = set()
        # By group: members that were told so, and have neither left nor been silent.
        self.members: dict[str, dict[str, int]] = {name: {} for name in GROUPS}
        # Offsets that were acknowledged, and where in the log each commit and each wanted deletion lies.
        self.acknowledged: set[int] = set()
        self.lifted: list[tuple[int, str, str]] = []

    async def run(self, steps: int) -> None:
        self.groups.on_leader(0)
        await self.turn(5)
        for _ in range(steps):
            await self.step()
            await self.turn(self.chance.randrange(3))
        await self.rest()
        await self.groups.close()

    async def turn(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def step(self) -> None:
        name, topic = self.chance.choice(GROUPS), self.chance.choice(TOPICS)
        match self.chance.randrange(16):
            case 0 | 1 | 2 | 3 if self.log.waiting:
                self.log.acknowledge(self.chance.choice((0, 0, 0, self.chance.randrange(len(self.log.waiting)))))
            case 4 | 5 | 6:
                self.start(self.commit(name, topic))
            case 7 | 8:
                self.start(self.join(name))
            case 9:
                self.start(self.delete(name))
            case 10:
                self.start(self.delete_offsets(name, topic))
            case 11:
                self.start(self.expire())
            case 12 if self.members[name]:
                self.leave(name)
            case 13:
                await self.turn(5)  # who was answered knows it
                self.pass_time()
            case 14:
                self.groups.on_follower(0)
                self.groups.on_leader(0)
            case _:
                pass

    def start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    # What is asked

    async def commit(self, name: str, topic: str) -> None:
        members = self.members[name]
        member = self.chance.choice(list(members)) if members else ""
        offset = next(self.numbers)
        commit = OffsetCommit(topic, 0, offset, commit_ms=self.clock.now_ms())
        code = (await self.groups.commits.commit(name, member, None, members.get(member, -1), [commit]))[0]
        if code is ErrorCode.NONE:
            self.acknowledged.add(offset)

    async def join(self, name: str) -> None:
        request = Join("", None, "c", "/h", SESSION_MS, SESSION_MS, "consumer", (("range", b""),))
        joined = await self.groups.join(name, request)
        while joined.error is ErrorCode.NONE:
            given = {m.member_id: b"x" for m in joined.members}
            generation = joined.generation
            synced = await self.groups.sync(name, Sync(joined.member_id, None, generation, assignments=given))
            if synced.error is ErrorCode.NONE:
                self.members[name][joined.member_id] = generation
                return
            if synced.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                return
            joined = await self.again(name, joined)

    async def again(self, name: str, joined: Joined) -> Joined:
        request = Join(joined.member_id, None, "c", "/h", SESSION_MS, SESSION_MS, "consumer", (("range", b""),))
        return await self.groups.join(name, request)

    async def delete(self, name: str) -> None:
        at = len(self.log.appended)
        self.lifted += [(at, name, topic) for topic in TOPICS]
        await self.groups.commits.delete_group(name)

    async def delete_offsets(self, name: str, topic: str) -> None:
        self.lifted.append((len(self.log.appended), name, topic))
        await self.groups.commits.delete_offsets(name, [(topic, 0)])

    async def expire(self) -> None:
        await self.groups.expire_offsets()

    def leave(self, name: str) -> None:
        member = self.chance.choice(list(self.members[name]))
        del self.members[name][member]
        self.groups.leave(name, [Leaver(member)])

    def pass_time(self) -> None:
        if self.chance.random() < 0.3:
            self.clock.advance(self.chance.choice((4 * DAY_S, 8 * DAY_S)))
            self.members = {name: {} for name in GROUPS}  # silent for longer than their sessions
        else:
            self.clock.advance(60.0)
        self.timers.fire()

    # What has to hold

    async def rest(self) -> None:
        """Let everything end that has begun: members that wait for others included."""
        for _ in range(60):
            while self.log.waiting:
                self.log.acknowledge()
                await self.turn(1)
            await self.turn(5)
            if not self.running and not self.log.waiting:
                break
            self.clock.advance(SESSION_MS / 1000 / 4)
            for name, members in self.members.items():
                for member in members:
                    self.groups.heartbeat(name, member, None, self.generation(name))
            self.timers.fire()
        assert not self.running, "somebody waits for ever"
        for name in GROUPS:
            self.members_are_in(name)
        await self.log_and_memory_agree()
        self.acknowledged_is_there()

    def generation(self, name: str) -> int:
        group = self.groups.roster.get(name)
        return group.generation if group is not None else -1

    def members_are_in(self, name: str) -> None:
        group = self.groups.roster.get(name)
        there = set(group.members) if group is not None else set()
        for member, generation in self.members[name].items():
            # Others opened a round after it was settled, and it did not come back: that is not the coordinator's.
            if group is None or group.generation == generation:
                assert member in there, f"{member} was answered and is not in {name}"

    async def log_and_memory_agree(self) -> None:
        loaded = (await loading.load(self.log, 0, self.clock.now_ms(), lambda text: None)).groups
        for name in GROUPS:
            ours, theirs = self.groups.roster.get(name), loaded.get(name)
            mine = ours.offsets.committed if ours is not None else {}
            assert mine == (theirs.offsets.committed if theirs is not None else {})

    def acknowledged_is_there(self) -> None:
        """By the log: only a wanted deletion, or expiry of what was old, follows an acknowledged commit."""
        newest: dict[tuple[str, str], OffsetCommit | None] = {}
        for at, (raw, value) in enumerate(self.log.appended):
            key = record_format.decode_key(raw)
            if not isinstance(key, record_format.OffsetKey):
                continue
            before = newest.get((key.group_id, key.topic))
            if value is None and before is not None and before.offset in self.acknowledged:
                wanted = any(where <= at and (g, t) == (key.group_id, key.topic) for where, g, t in self.lifted)
                old = self.clock.now_ms() - before.commit_ms >= RETENTION_MS
                assert wanted or old, f"{before} was deleted by nobody"
            newest[key.group_id, key.topic] = record_format.decode_offset(key, value) if value is not None else None
        for (name, topic), commit in newest.items():
            group = self.groups.roster.get(name)
            found = group.offsets.committed.get((topic, 0)) if group is not None else None
            assert (found.offset if found else None) == (commit.offset if commit else None)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(200), deadline=None)
def test_answers_hold_for_any_interleaving(seed: int) -> None:
    with structlog.testing.capture_logs():
        asyncio.run(History(seed).run(60))
