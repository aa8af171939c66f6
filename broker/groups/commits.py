"""Commits, fetches, deletes and expires offsets: the part of offsets.py that talks to the log (facts §16).

Rule 1: there is no await between a decision about a group and its append. After the append the group may have changed,
        or another may have its name: the code looks again.
Rule 2: an error in one group does not affect another.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import structlog

from logyard.broker.clock import Clock, passed_ms
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership, offsets, record_format, subscription
from logyard.broker.groups.append_errors import answer_for
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.groups.members import Group, GroupState
from logyard.broker.groups.offsets import Place
from logyard.broker.groups.owned_groups import Roster
from logyard.broker.groups.ports import KeyValue, OffsetsLog

log = structlog.get_logger("logyard.groups")


class Commits:
    """The committed offsets of the groups in `roster`. `spawn` starts a background task."""

    def __init__(
        self,
        roster: Roster,
        offsets_log: OffsetsLog,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        retention_ms: int,
        metadata_chars_max: int,
    ) -> None:
        self._roster = roster
        self._log = offsets_log
        self._clock = clock
        self._spawn = spawn
        self._retention_ms = retention_ms
        self._metadata_chars_max = metadata_chars_max

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
        longest = self._metadata_chars_max  # characters, although the setting is named for bytes: as in Kafka
        good = {(c.topic, c.partition): c for c in commits if len(c.metadata) <= longest}
        if good:
            self._roster.add(group)
            records = [
                (record_format.offset_key(group_id, t, p), record_format.offset_value(c)) for (t, p), c in good.items()
            ]
            code = await self._change(group, good, records)
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return [code if len(c.metadata) <= longest else too_large for c in commits]

    def fetch(
        self, group_id: str, wanted: Iterable[Place] | None, *, require_stable: bool = False
    ) -> tuple[ErrorCode, list[tuple[ErrorCode, OffsetCommit]]]:
        """Return the group's error code, and an error code and a commit for each wanted partition (all for None).

        A partition without a commit has offset -1. With `require_stable` a partition whose offset is about to change
        has UNSTABLE_OFFSET_COMMIT and -1.
        """
        code = self._roster.availability(group_id)
        if code is not ErrorCode.NONE:
            return code, []
        group = self._roster.get(group_id)
        kept = group.offsets if group is not None else offsets.GroupOffsets()
        found = []
        for place in kept.committed if wanted is None else wanted:
            if require_stable and kept.is_unstable(place):
                found.append((ErrorCode.UNSTABLE_OFFSET_COMMIT, OffsetCommit(*place, -1)))
            else:
                found.append((ErrorCode.NONE, kept.committed.get(place) or OffsetCommit(*place, -1)))
        return code, found

    async def delete_group(self, group_id: str) -> ErrorCode:
        code = self._roster.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code
        group = self._roster.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return await self._forget(group, group.offsets.known, whole=True)

    async def delete_offsets(self, group_id: str, partitions: Sequence[Place]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Delete committed offsets. Returns the group's error code, and one for each partition.

        A partition of a topic to which the group is subscribed keeps its offset and has GROUP_SUBSCRIBED_TO_TOPIC.
        """
        code = self._roster.availability(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code, []
        group = self._roster.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        busy = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        answers = [busy if subscription.is_subscribed(group, t) else ErrorCode.NONE for t, _ in partitions]
        gone = [tp for tp, answer in zip(partitions, answers, strict=True) if answer is ErrorCode.NONE]
        known = set(group.offsets.known)
        return await self._forget(group, [tp for tp in dict.fromkeys(gone) if tp in known]), answers

    def on_partitions_deleted(self, partitions: Iterable[Place]) -> None:
        """Delete the offsets of partitions whose topic was deleted."""
        gone = list(partitions)
        for group in self._roster.all() if gone else ():
            dropped = offsets.deleted(group.offsets, gone)
            if dropped:
                self._spawn(self._forget_deleted(group, dropped))

    async def _forget_deleted(self, group: Group, places: Sequence[Place]) -> None:
        before = {place: group.offsets.committed[place] for place in places if place in group.offsets.committed}
        code = await self._forget(group, places)
        if code is not ErrorCode.NONE:
            # As in Kafka they are dropped from memory at least: a new topic of that name is read from its start.
            group.offsets.drop(before)
            log.warning("could not write tombstones for a deleted topic", group=group.group_id, error=code.name)

    async def expire(self) -> None:
        """Delete commits that are past their retention, and groups without members that have no commits left."""
        for group in self._roster.all():
            try:
                await self._expire(group)
            except Exception:
                log.exception("could not expire offsets", group=group.group_id)

    async def _expire(self, group: Group) -> None:
        if not self._roster.has(group):
            return
        gone = self._outlived(group)
        if gone or group.is_empty:
            await self._forget(group, gone)

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
            return since(None, subscription.subscribed(group))
        return []

    async def _forget(self, group: Group, places: Sequence[Place], *, whole: bool = False) -> ErrorCode:
        """Write tombstones. An empty group is deleted with its last offset, as in Kafka."""
        records: list[KeyValue] = [(record_format.offset_key(group.group_id, t, p), None) for t, p in places]
        last = group.state is GroupState.EMPTY and not group.pending and not group.offsets.open
        if whole or (last and set(group.offsets.known) <= set(places)):
            records.append((record_format.group_key(group.group_id), None))
        if not records:
            return ErrorCode.NONE
        code = await self._change(group, dict.fromkeys(places), records)
        if code is ErrorCode.NONE and group.is_empty:
            # Somebody may have joined or committed during the append.
            self._roster.drop(group)
        return code

    async def _change(
        self, group: Group, change: Mapping[Place, OffsetCommit | None], records: Sequence[KeyValue]
    ) -> ErrorCode:
        """Append now, and apply the change when the log has acknowledged it."""
        number = group.offsets.begin(change)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            code = answer_for(await self._log.append(self._roster.partition_for(group.group_id), records))
        finally:
            group.offsets.end(number, written=code is ErrorCode.NONE)
            self._roster.drop_if_nothing(group)
        return code
