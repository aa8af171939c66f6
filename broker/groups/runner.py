"""The shell of the group coordinator: leadership, loading, waiting requests, timers; commits.py has the offsets.

It makes no decisions about groups; membership.py does. All code runs on one event loop, and changes a group completely
between two awaits. What a group may have for each of very many members (answers, timers that are due) is done in turns.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.clock import Clock, Now, passed_ms
from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.event_loop import TimerHandle
from logyard.broker.groups import effects as fx
from logyard.broker.groups import loading, membership, rebalance, record_format
from logyard.broker.groups.append_errors import answer_for_group
from logyard.broker.groups.commits import Commits
from logyard.broker.groups.events import GroupDescription, Join, Joined, Leaver, Sync, Synced
from logyard.broker.groups.members import Group, Member
from logyard.broker.groups.owned_groups import LedPartition, Roster
from logyard.broker.groups.ports import CallLater, OffsetsLog
from logyard.broker.portions import portions

log = structlog.get_logger("logyard.groups")

# A member's id begins with its client id, which is cut to this length: the id has to fit into the group's record.
STEM_CHARS_MAX = 255
# Seconds after which a failed load is tried again.
LOAD_AGAIN_S = 10.0
# Turns of the event loop: it receives between the first and the second, and runs the tasks of requests after that.
TURNS_BEFORE_DUE = 4
# Of answers, each of which a request then sends, lines of the log, and timers.
DONE_AT_ONCE = 100


class GroupCoordinator:
    """Coordinates the groups of the offsets partitions that this broker leads."""

    def __init__(
        self,
        offsets_log: OffsetsLog,
        clock: Clock,
        call_later: CallLater,
        new_id: Callable[[], str],
        rules: membership.Rules | None = None,
        offsets_retention_ms: int = 7 * 86_400_000,
        metadata_chars_max: int = 4096,
    ) -> None:
        self._log = offsets_log
        self.clock = clock
        self._call_later = call_later
        self._new_id = new_id
        self._rules = rules or membership.Rules()
        self.roster = Roster(offsets_log)
        self.commits = Commits(
            self.roster,
            offsets_log,
            clock,
            self._spawn,
            lambda: asyncio.sleep(0),
            offsets_retention_ms,
            metadata_chars_max,
        )
        self._tickets: dict[int, asyncio.Future[Any]] = {}
        self._next_ticket = 0
        self._is_stopping = False
        # By the group's identity: one that is gone leaves those of another of its name alone.
        self._timers: dict[tuple[int, fx.TimerName], TimerHandle] = {}
        self._gone: deque[Group] = deque()  # whose waiting requests and timers are there yet
        self._backlog: deque[Callable[[], None]] = deque()
        self._reloads: dict[int, TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def _now(self) -> Now:
        return Now(self.passed_ms(), self.clock.now_ms())

    def passed_ms(self) -> int:
        """Return the monotonic clock's milliseconds."""
        return passed_ms(self.clock)

    # -- leadership of offsets partitions

    def on_leader(self, partition: int) -> None:
        """This broker leads an offsets partition now: load its groups before serving them."""
        led, gone = self.roster.begin(partition)
        self._resign(gone)
        self._read(partition, led)

    def on_follower(self, partition: int) -> None:
        """This broker no longer leads the partition: drop its groups."""
        self._resign(self.roster.end(partition))

    def _resign(self, gone: Collection[Group]) -> None:
        """Nobody finds them any more; what waits for them is answered in turns, since there may be very many."""
        begins = bool(gone) and not self._gone
        self._gone.extend(gone)
        if begins:
            self._spawn(self._resign_all())

    async def _resign_all(self) -> None:
        async for portion in portions(self._given_up(), _cost):
            for group in portion:
                try:
                    self._perform(group, membership.resign(group, self._now()))
                except Exception as error:
                    tasks.failed("groups that are given up", error)

    def _given_up(self) -> Iterator[Group]:
        while self._gone:
            yield self._gone.popleft()

    def _read(self, partition: int, led: LedPartition) -> None:
        if self.roster.is_current(partition, led):
            self._spawn(self._load(partition, led))

    async def _load(self, partition: int, led: LedPartition) -> None:
        try:
            found = await loading.load(self._log, partition, self.clock.now_ms(), self._note)
        except Exception as error:
            # Mostly its directory has failed, or another broker leads it now. None of the groups are used: with a part
            # of them, consumers would begin at wrong offsets.
            expected = isinstance(error, (ApiError, StorageError))
            log.warning("groups not loaded", partition=partition, error=str(error), exc_info=not expected)
            self._reloads[partition] = self._call_later(LOAD_AGAIN_S, lambda: self._read(partition, led))
            return
        if not self.roster.is_current(partition, led):
            return
        led.groups, led.open, led.is_loaded = found.groups, found.open, True
        log.info("groups loaded", partition=partition, groups=len(led.groups))
        async for portion in portions(_with_members(list(led.groups.values()))):
            for group, member in portion if self.roster.is_current(partition, led) else ():
                if led.groups.get(group.group_id) is not group:
                    continue
                if member is not None:
                    self._begin_session(group, member)
                elif effects := membership.loaded(group, self._now(), self._rules):
                    self._perform(group, effects)

    def _begin_session(self, group: Group, member: Member) -> None:
        """Begin the session of a loaded group's member, unless it has left or joined again meanwhile."""
        name = rebalance.session_timer(member.member_id)
        if group.members.get(member.member_id) is member and (id(group), name) not in self._timers:
            rebalance.touch(member, self.passed_ms())
            self._start_timer(group, name, member.session_timeout_ms)

    def _note(self, text: str) -> None:
        log.error("skipped a record of the offsets topic", why=text)

    def partition_for(self, group_id: str) -> int:
        return self.roster.partition_for(group_id)

    def availability(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker may serve the group now, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self.roster.availability(group_id)

    # -- requests

    async def join(self, group_id: str, request: Join) -> Joined:
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return Joined(code, request.member_id)
        self.commits.up_to_date(group_id)
        group = self.roster.get(group_id)
        if group is None:
            if request.member_id:
                return Joined(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            group = Group(group_id, state_since_ms=self.clock.now_ms())
            self.roster.add(group)
        stem = (request.instance_id or request.client_id)[:STEM_CHARS_MAX]
        ticket, answer = self._wait()
        effects = membership.join(group, request, ticket, f"{stem}-{self._new_id()}", self._now(), self._rules)
        self._perform(group, effects)
        outcome = await answer
        return outcome if isinstance(outcome, Joined) else Joined(outcome, request.member_id)

    async def sync(self, group_id: str, request: Sync) -> Synced:
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The member joins again and finds the loaded group (facts §16).
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code is not ErrorCode.NONE:
            return Synced(code)
        group = self.roster.get(group_id)
        if group is None:
            return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
        ticket, answer = self._wait()
        self._perform(group, membership.sync(group, request, ticket, self.passed_ms()))
        outcome = await answer
        return outcome if isinstance(outcome, Synced) else Synced(outcome)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        group = self.roster.get(group_id)
        if group is None or not group_id:
            # A group that is there may be served; only for others find out why they are not.
            code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            return code if code is not ErrorCode.NONE else ErrorCode.UNKNOWN_MEMBER_ID
        return membership.heartbeat(group, member_id, instance_id, generation, self.passed_ms())

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Return the group's error code, and one for each leaver."""
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code, []
        group = self.roster.get(group_id)
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        answers = []
        for leaver in leavers:
            answer, effects = membership.leave(group, leaver, self._now(), self._rules)
            self._perform(group, effects)
            answers.append(answer)
        return ErrorCode.NONE, answers

    def describe(self, group_id: str) -> GroupDescription:
        code = self.availability(group_id)
        if code is not ErrorCode.NONE:
            return GroupDescription(code, group_id, "")
        group = self.roster.get(group_id)
        return group.describe() if group is not None else GroupDescription(ErrorCode.NONE, group_id)

    def list_groups(self) -> tuple[ErrorCode, list[Group]]:
        """Return this broker's groups; COORDINATOR_LOAD_IN_PROGRESS while some are being loaded."""
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.roster.is_loading else ErrorCode.NONE
        return code, self.roster.all()

    async def expire_offsets(self) -> None:
        """Delete commits that are past their retention, and groups without members that have no commits left."""
        await self.commits.expire()

    def stop_waiting(self) -> None:
        """Answer all waiting JoinGroups and SyncGroups, and later ones that would wait, with NOT_COORDINATOR."""
        self._is_stopping = True
        for ticket in list(self._tickets):
            self._answer(ticket, ErrorCode.NOT_COORDINATOR)

    async def close(self) -> None:
        for timer in (*self._timers.values(), *self._reloads.values()):
            timer.cancel()
        self._timers.clear()
        self._backlog.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- effects

    def _wait(self) -> tuple[int, "asyncio.Future[Any]"]:
        self._next_ticket += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tickets[self._next_ticket] = future
        if self._is_stopping:
            self._answer(self._next_ticket, ErrorCode.NOT_COORDINATOR)
        return self._next_ticket, future

    def _answer(self, ticket: int, outcome: Joined | Synced | ErrorCode) -> None:
        future = self._tickets.pop(ticket, None)
        if future is not None and not future.done():
            future.set_result(outcome)

    def _perform(self, group: Group, effects: fx.Effects) -> None:
        """Carry the effects out: the group's record is appended as it is now, and timers are set; answers and lines of
        the log, of which a large group has very many, have all that they tell, and may come in later turns."""
        told: list[fx.AnswerJoin | fx.AnswerSync | fx.AnswerError | fx.Note] = []
        for effect in effects:
            match effect:
                case fx.StartTimer(name, delay_ms):
                    self._start_timer(group, name, delay_ms)
                case fx.CancelTimer(name):
                    timer = self._timers.pop((id(group), name), None)
                    if timer is not None:
                        timer.cancel()
                case fx.StoreGroup():
                    self._store(group, effect)
                case _:
                    told.append(effect)
        if len(told) > DONE_AT_ONCE:
            self._in_turns(partial(self._tell, group, effect) for effect in told)
        else:
            for effect in told:
                self._tell(group, effect)
        self.roster.drop_if_nothing(group)

    def _tell(self, group: Group, effect: fx.AnswerJoin | fx.AnswerSync | fx.AnswerError | fx.Note) -> None:
        if isinstance(effect, fx.Note):
            log.info("group", group=group.group_id, note=effect.text)
        else:
            ticket, outcome = effect
            self._answer(ticket, outcome)

    def _in_turns(self, work: Iterable[Callable[[], None]]) -> None:
        """Have it done after what waits already, DONE_AT_ONCE in each turn of the event loop."""
        begins = not self._backlog
        self._backlog.extend(work)
        if begins:
            asyncio.get_running_loop().call_soon(self._do_some)

    def _do_some(self) -> None:
        some = [self._backlog.popleft() for _ in range(min(len(self._backlog), DONE_AT_ONCE))]
        if self._backlog:
            asyncio.get_running_loop().call_soon(self._do_some)
        for work in some:
            try:
                work()
            except Exception as error:
                tasks.failed("groups", error)

    def _start_timer(self, group: Group, name: fx.TimerName, delay_ms: int) -> None:
        key = (id(group), name)
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()

        self._timers[key] = self._call_later(delay_ms / 1000, lambda: self._due(group, name, TURNS_BEFORE_DUE))

    def _due(self, group: Group, name: fx.TimerName, turns: int) -> None:
        """A timer has run out: receive what has arrived before acting on it.

        uvloop runs timers before it receives. If the event loop was blocked for longer than a session, the heartbeats
        of all members may be waiting in their sockets.
        """
        key = (id(group), name)
        if turns:
            self._timers[key] = asyncio.get_running_loop().call_soon(self._due, group, name, turns - 1)
        else:
            self._in_turns([partial(self._fire, group, name, self._timers[key])])

    def _fire(self, group: Group, name: fx.TimerName, timer: TimerHandle) -> None:
        """Act on a timer, unless it was stopped or set again since it ran out."""
        key = (id(group), name)
        if self._timers.get(key) is not timer:
            return
        del self._timers[key]
        if self.roster.has(group):
            self._perform(group, membership.timer_fired(group, name, self._now(), self._rules))

    def _store(self, group: Group, effect: fx.StoreGroup) -> None:
        """Append the group's current state; `_stored` handles the result, whatever it is: others wait for it."""
        refused = asyncio.get_running_loop().create_future()
        appended: Awaitable[ErrorCode] = refused
        assignments = dict(effect.assignments)
        try:
            if record_format.group_bytes(group, assignments) > self._log.batch_bytes_max(group.partition):
                # A leader may send a hundred megabytes: half a second's work, only for the log to refuse it.
                refused.set_result(ErrorCode.MESSAGE_TOO_LARGE)
            else:
                value = record_format.group_value(group, assignments)
                appended = self._log.append(group.partition, [(record_format.group_key(group.group_id), value)])
        except Exception as error:
            tasks.failed("a group's record", error)
            refused.set_result(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._spawn(self._stored(group, effect, appended))

    async def _stored(self, group: Group, effect: fx.StoreGroup, appended: Awaitable[ErrorCode]) -> None:
        code = answer_for_group(await appended)
        if code is not ErrorCode.NONE:
            log.warning("group not stored", group=group.group_id, error=code.name)
        if self.roster.has(group):
            self._perform(group, rebalance.stored(group, effect, code, self._now(), self._rules.initial_delay_ms))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = tasks.spawn("groups", work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _cost(group: Group) -> int:
    return 1 + len(group.members) + len(group.pending)


def _with_members(groups: Iterable[Group]) -> Iterator[tuple[Group, Member | None]]:
    """Yield each group by itself, and with each of its members at that time."""
    for group in groups:
        yield group, None
        for member in list(group.members.values()):
            yield group, member
