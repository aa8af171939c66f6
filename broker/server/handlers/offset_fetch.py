"""OffsetFetch (9): v0 reads from ZooKeeper. From v2 on null topics mean all, and the group's error has a field of its
own; v7 adds `require_stable` (KIP-447), v8 several groups (KIP-709)."""

from collections.abc import Iterable
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups import zookeeper_offsets
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    if request.api_version == 0:
        return await _from_zookeeper(services, request, message)
    pauses = Pauses(services)
    if request.api_version >= 8:
        stable = message.require_stable
        # All commits of a group that is named twice are told once, other than by Kafka: see describe_groups.py.
        asked = {(g.group_id, -1 if g.topics is None else number): g for number, g in enumerate(message.groups)}
        return {
            "groups": [await _group(services, request, pauses, g.group_id, g.topics, stable) for g in asked.values()]
        }
    require_stable = request.api_version >= 7 and message.require_stable
    answer = await _group(services, request, pauses, message.group_id, message.topics, require_stable)
    if request.api_version < 2 and answer["error_code"]:
        # Before v2 the group's error is put into every partition.
        return {**answer, "topics": _refused(message.topics, answer["error_code"])}
    return answer


async def _from_zookeeper(services: Services, request: Request, message: Any) -> Fields:
    authorization.require(services, request, RIGHTS[request.api_key].group, message.group_id)
    pauses = Pauses(services)
    described = await authorization.topics_of_many(services, request, pauses, (t.name for t in message.topics))
    asked = await pauses.partitions((t.name, t.partition_indexes) for t in message.topics)
    known = [tp async for tp in pauses.between(asked) if tp.topic in described and services.metadata.partition(tp)]
    found = await zookeeper_offsets.fetch(services.zk, message.group_id, known)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, zookeeper_offsets.NO_OFFSET)
    refused = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, zookeeper_offsets.NO_OFFSET)
    answers = ((tp, found.get(tp, unknown if tp.topic in described else refused)) for tp in asked)
    commits = ((code, OffsetCommit(*tp, offset)) for tp, (code, offset) in answers)
    return {"topics": await _by_topic(commits, pauses)}


async def _group(
    services: Services, request: Request, pauses: Pauses, group_id: str, topics: Any, require_stable: bool
) -> dict[str, Any]:
    await pauses.after(parts_of_name(group_id))
    if not authorization.may(services, request, RIGHTS[request.api_key].group, group_id):
        return {"group_id": group_id, "error_code": int(ErrorCode.GROUP_AUTHORIZATION_FAILED), "topics": []}
    if topics is None:
        code, found = services.groups.commits.fetch(group_id, None, require_stable=require_stable)
        described = await authorization.seen_of_many(services, request, pauses, found.topics())
        seen = (each for each in found if each[1].topic in described)
        return {"group_id": group_id, "error_code": int(code), "topics": await _by_topic(seen, pauses)}
    described = await authorization.topics_of_many(services, request, pauses, (topic.name for topic in topics))
    named = ((topic.name, topic.partition_indexes) for topic in topics if topic.name in described)
    wanted = await pauses.partitions(named)
    code, found = services.groups.commits.fetch(group_id, wanted.keys(), require_stable=require_stable)
    answered = await _by_topic(found, pauses)
    if code is ErrorCode.NONE:
        async for topic in pauses.between(topics):
            if topic.name not in described:
                answered += _refused([topic], int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                await pauses.after(len(topic.partition_indexes))
    return {"group_id": group_id, "error_code": int(code), "topics": answered}


async def _by_topic(commits: Iterable[tuple[ErrorCode, OffsetCommit]], pauses: Pauses) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for code, commit in commits:
        await pauses.after(1)
        topics.setdefault(commit.topic, []).append(
            {
                "partition_index": commit.partition,
                "committed_offset": commit.offset,
                "committed_leader_epoch": commit.leader_epoch,
                "metadata": commit.metadata,
                "error_code": int(code),
            }
        )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _refused(topics: Any, code: int) -> list[dict[str, Any]]:
    return [
        {
            "name": t.name,
            "partitions": [
                {"partition_index": p, "committed_offset": -1, "metadata": "", "error_code": code}
                for p in t.partition_indexes
            ],
        }
        for t in topics or ()
    ]


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    if version >= 8:
        return {"groups": [{"group_id": g.group_id, "topics": [], "error_code": int(code)} for g in message.groups]}
    return {"error_code": int(code), "topics": _refused(message.topics, int(code)) if version < 2 else []}


HANDLER = Handler(message=handle, error=error)
