"""The shell of the group coordinator: which groups are ours, who waits, timers, and the offsets log.

Decides nothing about groups: that is groups.py. Everything runs on one event loop; between two awaits
a group is never seen half-changed.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from logyard.broker.clock import Clock
from logyard.broker.coordinator import effects as fx
from logyard.broker.coordinator import groups, loading, rebalance, storage
from logyard.broker.coordinator.events import (
    GroupDescription,
    Join,
    Joined,
    Leaver,
    OffsetCommit,
    Sync,
    Synced,
)
from logyard.broker.coordinator.members import Group, GroupState
from logyard.broker.coordinator.ports import CallLater, KeyValue, OffsetsLog, TimerHandle
from logyard.broker.errors import ApiError, ErrorCode, StorageError

log = structlog.get_logger("logyard.groups")

# How a failed append to the offsets log looks to a member (Kafka's GroupMetadataManager mapping).
_APPEND_ERRORS = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class GroupCoordinator:
    """Consumer groups of the offsets partitions this broker leads."""

    def __init__(
        self,
        offsets_log: OffsetsLog,
        clock: Clock,
        call_later: CallLater,
        new_id: Callable[[], str],
        rules: groups.Rules | None = None,
        offsets_retention_ms: int = 7 * 86_400_000,
        metadata_chars_max: int = 4096,
    ) -> None:
        self._log = offsets_log
        self._clock = clock
        self._call_later = call_later
        self._new_id = new_id
        self._rules = rules or groups.Rules()
        self._retention_ms = offsets_retention_ms
        self._metadata_chars_max = metadata_chars_max
        self._owned: dict[int, int] = {}
        self._loading: set[int] = set()
        self._groups: dict[str, Group] = {}
        self._tickets: dict[int, asyncio.Future[Any]] = {}
        self._next_ticket = 0
        self._timers: dict[tuple[str, fx.TimerName], TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- leadership of offsets partitions

    def on_leader(self, partition: int, leader_epoch: int) -> None:
        """This broker leads an offsets partition now: read its groups before serving them."""
        self._owned[partition] = leader_epoch
        self._loading.add(partition)
        self._spawn(self._load(partition, leader_epoch))

    def on_follower(self, partition: int) -> None:
        """This broker no longer leads the partition: its groups are someone else's."""
        self._owned.pop(partition, None)
        self._loading.discard(partition)
        self._unload(partition)

    def _unload(self, partition: int) -> None:
        for group in [g for g in self._groups.values() if self.partition_for(g.group_id) == partition]:
            del self._groups[group.group_id]
            self._perform(group, groups.resign(group, self._clock.now_ms()))

    async def _load(self, partition: int, leader_epoch: int) -> None:
        self._unload(partition)
        try:
            found = await loading.load(self._log, partition, self._clock, self._note)
        except (ApiError, StorageError) as error:
            # Its directory failed, mostly, or the leadership went while it was read: then somebody else is to lead it.
            # Groups in part would be worse than none: their members would begin again at offsets they never reached.
            log.warning("groups not loaded", partition=partition, error=str(error))
            return
        if self._owned.get(partition) != leader_epoch:
            return
        self._groups.update(found)
        for group in found.values():
            for member in group.members.values():
                timer = fx.StartTimer(rebalance.session_timer(member.member_id), member.session_timeout_ms)
                self._perform(group, [timer])
        self._loading.discard(partition)
        log.info("groups loaded", partition=partition, groups=len(found))

    def _note(self, text: str) -> None:
        log.error("offsets record left out", why=text)

    def partition_for(self, group_id: str) -> int:
        return storage.partition_for(group_id, self._log.partition_count)

    def availability(self, group_id: str) -> ErrorCode:
        """NONE where this broker may answer for the group now."""
        partition = self.partition_for(group_id)
        if partition not in self._owned:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partition in self._loading else ErrorCode.NONE

    # -- requests

    async def join(self, group_id: str, request: Join) -> Joined:
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return Joined(code, request.member_id)
        group = self._groups.get(group_id)
        if group is None:
            if request.member_id:
                return Joined(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            now_ms = self._clock.now_ms()
            group = self._groups[group_id] = Group(group_id, state_since_ms=now_ms)
        stem = request.instance_id or request.client_id
        ticket, answer = self._wait()
        effects = groups.join(group, request, ticket, f"{stem}-{self._new_id()}", self._clock.now_ms(), self._rules)
        self._perform(group, effects)
        outcome = await answer
        return outcome if isinstance(outcome, Joined) else Joined(outcome, request.member_id)

    async def sync(self, group_id: str, request: Sync) -> Synced:
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The member rejoins and finds the loaded group (facts §16).
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code is not ErrorCode.NONE:
            return Synced(code)
        group = self._groups.get(group_id)
        if group is None:
            return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
        ticket, answer = self._wait()
        self._perform(group, groups.sync(group, request, ticket, self._clock.now_ms()))
        outcome = await answer
        return outcome if isinstance(outcome, Synced) else Synced(outcome)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if code is not ErrorCode.NONE:
            return code
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return groups.heartbeat(group, member_id, instance_id, generation, self._clock.now_ms())

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Return the answer for the group, and one for each leaver."""
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code, []
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        answers = []
        for leaver in leavers:
            answer, effects = groups.leave(group, leaver, self._clock.now_ms(), self._rules)
            self._perform(group, effects)
            answers.append(answer)
        return ErrorCode.NONE, answers

    async def commit_offsets(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        commits: Sequence[OffsetCommit],
    ) -> list[ErrorCode]:
        """Store the commits; one answer for each, in their order."""
        code = self.availability(group_id)
        group = self._groups.get(group_id)
        if code is ErrorCode.NONE and group is None:
            if generation >= 0:
                code = ErrorCode.ILLEGAL_GENERATION
            else:
                group = self._groups[group_id] = Group(group_id, state_since_ms=self._clock.now_ms())
        if code is ErrorCode.NONE and group is not None:
            code = groups.commit_refusal(group, member_id, instance_id, generation, self._clock.now_ms())
        if code is not ErrorCode.NONE or group is None:
            return [code] * len(commits)
        longest = self._metadata_chars_max  # characters, whatever the setting is called: Kafka counts those
        good = [c for c in commits if len(c.metadata) <= longest]
        if good:
            records: list[KeyValue] = [
                (storage.offset_key(group_id, c.topic, c.partition), storage.offset_value(c)) for c in good
            ]
            appended = await self._log.append(self.partition_for(group_id), records)
            code = _APPEND_ERRORS.get(appended, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is ErrorCode.NONE:
                group.offsets.update({(c.topic, c.partition): c for c in good})
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return [code if len(c.metadata) <= longest else too_large for c in commits]

    def fetch_offsets(
        self, group_id: str, wanted: Iterable[tuple[str, int]] | None
    ) -> tuple[ErrorCode, list[OffsetCommit]]:
        """What is committed: for the wanted partitions (offset -1 where nothing is), or for all with None."""
        code = self.availability(group_id)
        if code is not ErrorCode.NONE:
            return code, []
        group = self._groups.get(group_id)
        committed = group.offsets if group is not None else {}
        if wanted is None:
            return code, list(committed.values())
        return code, [committed.get((t, p)) or OffsetCommit(t, p, -1) for t, p in wanted]

    def describe(self, group_id: str) -> GroupDescription:
        code = self.availability(group_id)
        if code is not ErrorCode.NONE:
            return GroupDescription(code, group_id, "")
        group = self._groups.get(group_id)
        return group.describe() if group is not None else GroupDescription(ErrorCode.NONE, group_id)

    def list_groups(self, states: Iterable[str] = ()) -> tuple[ErrorCode, list[Group]]:
        """Every group of this broker, of the named states only where some are named."""
        wanted = {state.lower() for state in states}
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loading else ErrorCode.NONE
        return code, [g for g in self._groups.values() if not wanted or g.state.value.lower() in wanted]

    async def delete_group(self, group_id: str) -> ErrorCode:
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        records: list[KeyValue] = [(storage.offset_key(group_id, t, p), None) for t, p in group.offsets]
        records.append((storage.group_key(group_id), None))
        appended = await self._log.append(self.partition_for(group_id), records)
        if appended is ErrorCode.NONE:
            self._groups.pop(group_id, None)
        return _APPEND_ERRORS.get(appended, ErrorCode.UNKNOWN_SERVER_ERROR)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]], subscribed: Callable[[Group, str], bool]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Forget committed offsets, but not of topics the group is subscribed to (error 86)."""
        code = self.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code, []
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        busy = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        answers = [busy if subscribed(group, t) else ErrorCode.NONE for t, _ in partitions]
        gone = [tp for tp, answer in zip(partitions, answers, strict=True) if answer is ErrorCode.NONE]
        appended = await self._forget(group, [tp for tp in gone if tp in group.offsets])
        return _APPEND_ERRORS.get(appended, ErrorCode.UNKNOWN_SERVER_ERROR), answers

    async def _forget(self, group: Group, partitions: Sequence[tuple[str, int]]) -> ErrorCode:
        if not partitions:
            return ErrorCode.NONE
        records: list[KeyValue] = [(storage.offset_key(group.group_id, t, p), None) for t, p in partitions]
        # An empty group goes with its last offset, as in Kafka (GroupMetadataManager.cleanupGroupMetadata).
        last = group.state is GroupState.EMPTY and not group.pending and group.offsets.keys() <= set(partitions)
        if last:
            records.append((storage.group_key(group.group_id), None))
        appended = await self._log.append(self.partition_for(group.group_id), records)
        if appended is ErrorCode.NONE:
            for tp in partitions:
                group.offsets.pop(tp, None)
            if last and not group.offsets and group.state is GroupState.EMPTY:
                self._groups.pop(group.group_id, None)
        return appended

    # -- housekeeping

    def on_partitions_deleted(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Topics went away: their committed offsets go too."""
        gone = set(partitions)
        for group in list(self._groups.values()):
            dropped = [tp for tp in group.offsets if tp in gone]
            if dropped:
                self._spawn(self._forget_quietly(group, dropped))

    async def _forget_quietly(self, group: Group, partitions: Sequence[tuple[str, int]]) -> None:
        await self._forget(group, partitions)

    async def expire_offsets(self) -> None:
        """Drop what groups committed that have been empty for longer than the retention, then the groups."""
        horizon = self._clock.now_ms() - self._retention_ms
        for group in [g for g in self._groups.values() if g.state is GroupState.EMPTY]:
            if group.state_since_ms > horizon or group.pending:
                continue
            old = [tp for tp, c in group.offsets.items() if c.commit_ms <= horizon]
            if len(old) == len(group.offsets):
                await self.delete_group(group.group_id)
            else:
                await self._forget(group, old)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- effects

    def _wait(self) -> tuple[int, "asyncio.Future[Any]"]:
        self._next_ticket += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tickets[self._next_ticket] = future
        return self._next_ticket, future

    def _answer(self, ticket: int, outcome: Joined | Synced | ErrorCode) -> None:
        future = self._tickets.pop(ticket, None)
        if future is not None and not future.done():
            future.set_result(outcome)

    def _perform(self, group: Group, effects: fx.Effects) -> None:
        for effect in effects:
            match effect:
                case fx.AnswerJoin(ticket, joined):
                    self._answer(ticket, joined)
                case fx.AnswerSync(ticket, synced):
                    self._answer(ticket, synced)
                case fx.AnswerError(ticket, code):
                    self._answer(ticket, code)
                case fx.StartTimer(name, delay_ms):
                    self._start_timer(group, name, delay_ms)
                case fx.CancelTimer(name):
                    timer = self._timers.pop((group.group_id, name), None)
                    if timer is not None:
                        timer.cancel()
                case fx.StoreGroup():
                    self._spawn(self._store(group, effect))
                case fx.Note(text):
                    log.info("group", group=group.group_id, note=text)

    def _start_timer(self, group: Group, name: fx.TimerName, delay_ms: int) -> None:
        key = (group.group_id, name)
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()

        def fire() -> None:
            self._timers.pop(key, None)
            if self._groups.get(group.group_id) is group:
                self._perform(group, groups.timer_fired(group, name, self._clock.now_ms(), self._rules))

        self._timers[key] = self._call_later(delay_ms / 1000, fire)

    async def _store(self, group: Group, effect: fx.StoreGroup) -> None:
        value = storage.group_value(group, dict(effect.assignments))
        record: KeyValue = (storage.group_key(group.group_id), value)
        appended = await self._log.append(self.partition_for(group.group_id), [record])
        code = _APPEND_ERRORS.get(appended, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code is not ErrorCode.NONE:
            log.warning("group not stored", group=group.group_id, error=code.name)
        now_ms = self._clock.now_ms()
        self._perform(group, rebalance.stored(group, effect, code, now_ms, self._rules.initial_delay_ms))

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("group work failed", exc_info=task.exception())
