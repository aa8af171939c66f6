"""Consumer groups with state, members and lag; one group with the offsets of its partitions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from logyard.admin.cluster.snapshot import GroupView
from logyard.admin.groups.groups import DEAD, Member, OffsetRow, offset_rows
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.cluster.lag import GroupDetail, Lag, records, total
from logyard.plugins.logyard_ui.cluster.old_groups import OldGroups
from logyard.plugins.logyard_ui.dependencies import OPTIONAL_S, REQUIRED_S, RequestedCluster
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

PARTITIONS_MAX = 5_000
MEMBERS_MAX = 1_000
GROUPS_MAX = 10_000
# Groups read few topics; a longer list of names would not help to tell groups apart.
TOPICS_MAX = 100
PROBLEMS_MAX = 5


router = APIRouter()


@router.get("/groups")
async def groups(request: Request, cluster: RequestedCluster) -> Response:
    """Consumer groups with state, members and lag; beside them those that only ZooKeeper has."""
    snapshot = required(await cluster.state(REQUIRED_S)).snapshot
    cached = await cluster.groups(REQUIRED_S)
    listed, parts = required(cached), OptionalParts()
    lag = parts.take("lag", await cluster.lag(listed, snapshot, OPTIONAL_S))
    if lag is not None and lag.problem is not None:
        parts.problems["lag"] = lag.problem
    old = parts.take("old_groups", await cluster.old_groups(snapshot, OPTIONAL_S))
    rest = {"taken_at_ms": cached.taken_ms} | parts.as_json()
    return await respond_in_thread(request, lambda: groups_json(listed, lag) | old_groups_json(old) | rest)


@router.get("/group")
async def group(
    request: Request, cluster: RequestedCluster, name: Annotated[str, Query(min_length=1, max_length=500)]
) -> Response:
    """One group: its members and what each one reads, offsets and lag."""
    snapshot = required(await cluster.state(REQUIRED_S)).snapshot
    detail = required(await cluster.group(name, snapshot, REQUIRED_S))
    if detail.group.state == DEAD:
        raise HTTPException(404, f"there is no group {name}")
    listed = await cluster.groups(0)
    protocol_type = next((one.protocol_type for one in listed.value or () if one.group_id == name), None)
    parts = OptionalParts(problems={} if detail.problem is None else {"offsets": detail.problem})
    return await respond_in_thread(request, lambda: group_json(detail, protocol_type) | parts.as_json())


def groups_json(groups: Sequence[GroupView], lag: Lag | None) -> dict[str, Any]:
    return {
        "groups_total": len(groups),
        "groups": [_listed(group, lag) for group in groups[:GROUPS_MAX]],
    }


def old_groups_json(old: OldGroups | None) -> dict[str, Any]:
    """The groups of the first consumers; None while they are not read."""
    return {
        "old_groups_total": 0 if old is None else old.total,
        "old_groups": None
        if old is None
        else [
            {
                "group": group.name,
                "active": group.is_active,
                "consumers": sorted(group.consumers)[:MEMBERS_MAX],
                "topics": sorted({tp.topic for tp in group.offsets})[:TOPICS_MAX],
                "partitions_owned": len(group.owners),
                "lag": old.lag(group),
                "problems": list(group.problems[:PROBLEMS_MAX]),
            }
            for group in old.groups
        ],
    }


def _listed(group: GroupView, lag: Lag | None) -> dict[str, Any]:
    lags = lag.of(group.group_id) if lag is not None else None
    unread = {} if lag is None else lag.unread(group.group_id)
    return {
        "group": group.group_id,
        "state": group.state,
        "members": group.members,
        "protocol_type": group.protocol_type,
        "topics": None if lags is None else sorted({tp.topic for tp in (*lags, *unread)})[:TOPICS_MAX],
        "lag": None if lags is None else total(lags.values()) if lags else 0,
        "unread": None if lags is None else total(unread.values()) if unread else 0,
        "uncommitted": None if lags is None else len(unread),
    }


def group_json(detail: GroupDetail, protocol_type: str | None) -> dict[str, Any]:
    group = detail.group
    ends = detail.ends or {}
    rows = offset_rows(group, detail.committed, ends)
    listed = {row.tp for row in rows}
    rows += [OffsetRow(tp, None, ends.get(tp)) for tp in detail.uncommitted if tp not in listed]
    unread = [records(detail.starts.get(tp), ends.get(tp)) for tp in detail.uncommitted]
    return {
        "group": group.name,
        "state": group.state,
        "protocol_type": protocol_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator_id if group.coordinator_id >= 0 else None,
        "members_total": len(group.members),
        "members": [_member(member) for member in group.members[:MEMBERS_MAX]],
        "partitions_total": len(rows),
        "partitions": [_row(row, detail.starts) for row in rows[:PARTITIONS_MAX]],
        "lag": total(_lag(row) for row in rows),
        "unread": total(unread) if unread else 0,
        "uncommitted": len(unread),
    }


def _member(member: Member) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(member.partitions)[:PARTITIONS_MAX]:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return {
        "member_id": member.consumer_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id or None,
        "partitions": [[topic, numbers] for topic, numbers in topics.items()],
    }


def _row(row: OffsetRow, starts: Mapping[TopicPartition, int]) -> dict[str, Any]:
    tp: TopicPartition = row.tp
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "committed": row.committed,
        "end": row.end,
        "lag": _lag(row),
        "unread": None if row.committed is not None else records(starts.get(tp), row.end),
        "member_id": row.member.consumer_id if row.member is not None else None,
        "client_id": row.member.client_id if row.member is not None else None,
    }


def _lag(row: OffsetRow) -> int | None:
    """Never below 0: the end may have been read a moment before the commit."""
    return None if row.lag is None else max(row.lag, 0)
