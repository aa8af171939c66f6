"""Commits, fetches, deletes and expires offsets: the part of offsets.py that talks to the log (facts §16).

Rule 1: there is no await between a decision about a group and its append. After the append the group may have changed,
        or another may have its name: the code looks again.
Rule 2: an error in one group does not affect another.
Rule 3: a deletion takes turns, but nobody sees a part of it: what was not yet deleted of a group is deleted before
        anyone joins it, reads its offsets or commits some. So what is committed for a new topic of that name stays.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.clock import Clock, passed_ms
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership, offsets, record_format, subscription
from logyard.broker.groups.append_errors import answer_for, answer_for_deletion
from logyard.broker.groups.deletion import APPEND_COST, TOMBSTONE_COST, Deletion, Deletions, tombstones
from logyard.broker.groups.events import Committer, OffsetCommit
from logyard.broker.groups.members import Group, GroupState
from logyard.broker.groups.offsets import Place, Places, Snapshot
from logyard.broker.groups.owned_groups import Roster
from logyard.broker.groups.ports import Appended, KeyValue, OffsetsLog, Producer

# Commits and groups: some milliseconds' work.
LOOKED_AT_ONCE = 5000

Told = Callable[[Sequence[Place], int, Appended], None]
"""Gets the partitions of a batch of tombstones, the number of their change, and its append."""

log = structlog.get_logger("logyard.groups")


class Commits:
    """The committed offsets of the groups in `roster`. `spawn` starts a background task, `pause` lets others run."""

    def __init__(
        self,
        roster: Roster,
        offsets_log: OffsetsLog,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        pause: Callable[[], Awaitable[None]],
        retention_ms: int,
        metadata_chars_max: int,
    ) -> None:
        self._roster = roster
        self._log = offsets_log
        self._clock = clock
        self._spawn = spawn
        self._pause = pause
        self._retention_ms = retention_ms
        self._metadata_chars_max = metadata_chars_max
        self._deletions = Deletions()  # of partitions
        self._is_deleting = False
        self._forgetting: list[Deletion] = []  # of one group's offsets

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        commits: Sequence[OffsetCommit],
    ) -> list[ErrorCode]:
        """Store the commits. Returns one error code for each, in their order.

        ILLEGAL_GENERATION, OFFSET_METADATA_TOO_LARGE, and what `Roster.availability`, `membership.commit_refusal` and
        `answer_for` return.
        """
        code = self._roster.availability(group_id)
        self.up_to_date(group_id)
        group = self._roster.get(group_id)
        if code is ErrorCode.NONE and group is None:
            if generation >= 0:
                code = ErrorCode.ILLEGAL_GENERATION
            else:
                group = Group(group_id, state_since_ms=self._clock.now_ms())
        if code is ErrorCode.NONE and group is not None:
            code = membership.commit_refusal(group, member_id, instance_id, generation, passed_ms(self._clock))
        if code is not ErrorCode.NONE or group is None:
            return [code] * len(commits)
        good = self._short_enough(commits)
        records = self._records(group, good) if good else ()
        if records is None:
            code = answer_for(ErrorCode.MESSAGE_TOO_LARGE)
        elif records:
            self._roster.add(group)
            code = answer_for(await self._applied(group, *self._append(group, good, records)))
        return self._answers(commits, code)

    def _short_enough(self, commits: Sequence[OffsetCommit]) -> dict[Place, OffsetCommit]:
        longest = self._metadata_chars_max  # characters, although the setting is named for bytes: as in Kafka
        return {(c.topic, c.partition): c for c in commits if len(c.metadata) <= longest}

    def _records(self, group: Group, commits: Mapping[Place, OffsetCommit]) -> list[KeyValue] | None:
        bytes_max = self._log.batch_bytes_max(self._roster.partition_for(group.group_id))
        return record_format.offset_records(group.group_id, commits.values(), bytes_max)

    def _answers(self, commits: Sequence[OffsetCommit], code: ErrorCode) -> list[ErrorCode]:
        longest, too_large = self._metadata_chars_max, ErrorCode.OFFSET_METADATA_TOO_LARGE
        return [code if len(c.metadata) <= longest else too_large for c in commits]

    async def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: Producer,
        commits: Sequence[OffsetCommit],
    ) -> list[ErrorCode]:
        """Store the commits as pending ones; one answer for each, in their order.

        Whether the transaction is open for the group was verified before.
        """
        code = self._roster.availability(group_id)
        self.up_to_date(group_id)
        group = self._roster.get(group_id) or Group(group_id, state_since_ms=self._clock.now_ms())
        if code is ErrorCode.NONE:
            code = membership.transactional_commit_refusal(group, committer)
        if code is not ErrorCode.NONE:
            return [code] * len(commits)
        good = self._short_enough(commits)
        if good:
            code = await self._append_open(group, producer, good)
        return self._answers(commits, code)

    async def _append_open(self, group: Group, producer: Producer, commits: Mapping[Place, OffsetCommit]) -> ErrorCode:
        """Whatever is answered: what lies in the log is pending, as it is for who loads the group."""
        if (records := self._records(group, commits)) is None:
            return answer_for(ErrorCode.MESSAGE_TOO_LARGE)
        appended = self._log.append(self._roster.partition_for(group.group_id), records, producer)
        if appended.base_offset >= 0:
            self._roster.add(group)
            group.offsets.take_open(producer.producer_id, appended.base_offset, commits)
            self._roster.note_open(group, producer.producer_id)
        return answer_for(await appended)

    def end_transaction(self, partition: int, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """The producer's marker in a partition of the offsets log is replicated: its commits there count, or go."""
        for group in self._roster.with_open(partition, producer_id):
            self.up_to_date(group.group_id)
            if not group.offsets.end_transaction(producer_id, marker_offset, committed=committed):
                self._roster.forget_open(group, producer_id)
            self._roster.drop_if_nothing(group)

    def fetch(
        self, group_id: str, wanted: Places | None, *, require_stable: bool = False
    ) -> tuple[ErrorCode, Snapshot]:
        """Return the group's error code, and the offsets of the wanted partitions (all for None) as they are now."""
        code = self._roster.availability(group_id)
        self.up_to_date(group_id)
        group = self._roster.get(group_id) if code is ErrorCode.NONE else None
        kept = group.offsets if group is not None else offsets.GroupOffsets()
        return code, Snapshot(kept, wanted if code is ErrorCode.NONE else frozenset(), require_stable=require_stable)

    async def delete_group(self, group_id: str) -> ErrorCode:
        """The group without a name too, which consumers without membership may have: as in Kafka."""
        code = self._roster.availability(group_id)
        if code is not ErrorCode.NONE:
            return code
        self.up_to_date(group_id)
        group = self._roster.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return await self._forget(group, group.offsets.known, whole=True)

    async def delete_offsets(self, group_id: str, partitions: Sequence[Place]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Delete committed offsets. Returns the group's error code, and one for each partition.

        A partition of a topic to which the group is subscribed keeps its offset and has GROUP_SUBSCRIBED_TO_TOPIC. A
        group whose members are no consumers keeps all: NON_EMPTY_GROUP.
        """
        code = self._roster.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code, []
        self.up_to_date(group_id)
        group = self._roster.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        if group.members and group.protocol_type != subscription.CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP, []
        if not partitions:
            return ErrorCode.NONE, []
        busy = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        kept = subscription.subscribed_of(group, {topic for topic, _ in partitions})
        answers = [busy if topic in kept else ErrorCode.NONE for topic, _ in partitions]
        gone = [tp for tp, answer in zip(partitions, answers, strict=True) if answer is ErrorCode.NONE]
        return await self._forget(group, group.offsets.known_of(dict.fromkeys(gone))), answers

    def on_partitions_deleted(self, partitions: Iterable[Place]) -> None:
        """Delete the offsets of partitions whose topic was deleted, with turns for others (rule 3)."""
        gone = dict.fromkeys(partitions)
        if gone:
            self._deletions.add(gone, self._roster.by_name())
            if not self._is_deleting:
                self._is_deleting = True
                self._spawn(self._delete())

    async def _delete(self) -> None:
        """Carry the deletions out, in one group after the other."""
        cost = 0
        while (behind := self._deletions.next()) is not None:
            for more in self._deletions.begin(behind[0], self._catch_up(*behind)):
                cost += more
                if cost > LOOKED_AT_ONCE:
                    cost = 0
                    await self._pause()
        self._is_deleting = False

    def up_to_date(self, group_id: str) -> None:
        """Before a group is used: nothing is left in it of what is deleted (rule 3)."""
        for deletion in (self._deletions, *self._forgetting):
            deletion.finish(group_id)
        if (behind := self._deletions.take(group_id)) is not None:
            for _ in self._catch_up(*behind):
                pass

    def _catch_up(self, group: Group, deletions: Iterable[dict[Place, None]]) -> Generator[int, None, None]:
        for gone in deletions:
            yield from self._forget_deleted(group, gone)

    def _forget_deleted(self, group: Group, gone: dict[Place, None]) -> Generator[int, None, None]:
        """Append a group's tombstones step by step; yields what each step has cost."""

        def told(places: Sequence[Place], number: int, appended: Appended) -> None:
            kept = group.offsets.committed
            before = {place: kept[place] for place in places if place in kept}
            self._spawn(self._deleted_forgotten(group, before, number, appended))

        try:
            if self._roster.has(group):
                self._drop_open(group, gone)
                dropped = group.offsets.known_of(gone)
                yield 1 + min(len(gone), len(group.offsets.committed))
                if dropped:
                    yield (yield from self._bury(group, dropped, told))
        except Exception as error:
            tasks.failed("offsets of deleted partitions", error)

    async def _deleted_forgotten(
        self, group: Group, before: Mapping[Place, OffsetCommit], number: int, appended: Appended
    ) -> None:
        code = await self._applied(group, number, appended)
        if code is ErrorCode.NONE:
            self._drop_if_empty(group)
        else:
            # As in Kafka they are dropped from memory at least: a new topic of that name is read from its start.
            group.offsets.drop(before)
            log.warning("could not write tombstones for a deleted topic", group=group.group_id, error=code.name)

    def _drop_open(self, group: Group, places: Collection[Place]) -> None:
        before = list(group.offsets.open)
        group.offsets.drop_open(places)
        for producer_id in before:
            if producer_id not in group.offsets.open:
                self._roster.forget_open(group, producer_id)
        if before:
            self._roster.drop_if_nothing(group)

    async def expire(self) -> None:
        """Delete commits that are past their retention, and groups without members that have no commits left."""
        looked_at, told = 0, Counter[ErrorCode]()
        for group in self._roster.all():
            looked_at += 1 + len(group.offsets.committed)
            if looked_at > LOOKED_AT_ONCE:
                looked_at = 0
                await self._pause()
            try:
                code, count = await self._expire(group)
                told[code] += count
            except Exception:
                log.exception("could not expire offsets", group=group.group_id)
        if expired := told.pop(ErrorCode.NONE, 0):
            log.info("offsets expired", offsets=expired)
        for code, count in told.items():
            log.warning("offsets not expired", offsets=count, error=code.name)

    async def _expire(self, group: Group) -> tuple[ErrorCode, int]:
        """Return how many were to go, and what came of it."""
        gone = self._outlived(group) if self._roster.has(group) else []
        if not gone and not (group.is_empty and self._roster.has(group)):
            return ErrorCode.NONE, 0
        return await self._forget(group, gone), len(gone)

    def _outlived(self, group: Group) -> list[Place]:
        """Return the partitions whose commits are past their retention, which begins as in Kafka.

        Group that became empty: then. Group that never had members: at each commit. Stable group of consumers: at each
        commit, and only topics to which it is not subscribed expire.
        """

        def since(begun_ms: int | None, kept: Iterable[str] = ()) -> list[Place]:
            names = frozenset(kept)
            return offsets.outlived(
                group.offsets, begun_ms, self._clock.now_ms(), self._retention_ms, names.__contains__
            )

        if group.protocol_type is None:
            return since(None)
        if group.state is GroupState.EMPTY:
            return [] if group.pending else since(group.state_since_ms)
        if group.state is GroupState.STABLE and group.protocol_type == subscription.CONSUMER:
            kept = subscription.subscribed(group)
            return [] if kept is None else since(None, kept)
        return []

    async def _forget(self, group: Group, places: Sequence[Place], *, whole: bool = False) -> ErrorCode:
        """Write tombstones, with turns for others (rule 3), for some of what is known of the group."""
        answers: list[Awaitable[ErrorCode] | ErrorCode] = []
        deletion = Deletion()
        self._forgetting.append(deletion)
        try:
            for _ in deletion.begin(group, self._forget_in_steps(group, places, answers, whole=whole)):
                await self._pause()
        finally:
            self._forgetting.remove(deletion)
        codes = [each if isinstance(each, ErrorCode) else answer_for_deletion(await each) for each in answers]
        code = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
        if code is ErrorCode.NONE and codes:
            self._drop_if_empty(group)
        return code

    def _forget_in_steps(
        self, group: Group, places: Sequence[Place], answers: list[Awaitable[ErrorCode] | ErrorCode], *, whole: bool
    ) -> Generator[int, None, None]:
        """Add to `answers` what comes of each step."""

        def told(part: Sequence[Place], number: int, appended: Appended) -> None:
            answers.append(tasks.answering(self._applied(group, number, appended)))

        try:
            yield from self._bury(group, places, told, whole=whole)
            if not self._roster.has(group):
                answers.append(self._roster.outcome_without(group))
        except Exception as error:
            # Another request may be carrying this out: it is not its own.
            tasks.failed("offsets of a group", error)
            answers.append(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _bury(
        self, group: Group, places: Sequence[Place], told: Told, *, whole: bool = False
    ) -> Generator[int, None, int]:
        """Append tombstones, as many in each step as a batch takes; yields what each step but the last has cost, and
        returns that of the last.

        The places are some of those that are known, each once. The last step has the group's own tombstone if the group
        is empty and has no other offsets, as in Kafka, or is deleted as a `whole`.
        """
        are_all = len(places) == group.offsets.known_count
        done = 0
        while self._roster.has(group):
            records = tombstones(group.group_id, places, done)
            part = places[done : done + len(records)]
            done += len(part)
            is_over = done == len(places)
            if is_over and (whole or (are_all and group.has_only_offsets)):
                records.append((record_format.group_key(group.group_id), None))
            if records:
                told(part, *self._append(group, dict.fromkeys(part), records))
            cost = APPEND_COST + TOMBSTONE_COST * len(part)
            if is_over:
                return cost
            yield cost
        return 0

    def _drop_if_empty(self, group: Group) -> None:
        """Somebody may have joined or committed during the append."""
        if group.is_empty:
            self._roster.drop(group)

    def _append(
        self, group: Group, change: Mapping[Place, OffsetCommit | None], records: Sequence[KeyValue]
    ) -> tuple[int, Appended]:
        """Append now. Returns the change's number and its append, for `_applied`."""
        number = group.offsets.begin(change)
        try:
            return number, self._log.append(group.partition, records)
        except BaseException:
            self._end(group, number, offsets.NOT_WRITTEN)
            raise

    async def _applied(self, group: Group, number: int, appended: Appended) -> ErrorCode:
        """Apply the change when the log has acknowledged it; returns what came of the append."""
        written_at = offsets.NOT_WRITTEN
        try:
            code = await appended
            if code is ErrorCode.NONE:
                written_at = appended.base_offset
        finally:
            self._end(group, number, written_at)
        return code

    def _end(self, group: Group, number: int, written_at: int) -> None:
        group.offsets.end(number, written_at)
        self._roster.drop_if_nothing(group)
