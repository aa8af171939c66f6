"""Requests that change many things, or one thing in many ways, do not hold the event loop up."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode
from tests.support.inside_broker import InsideBroker
from tests.support.longest_turn import least_answer

pytestmark = pytest.mark.asyncio(loop_scope="module")
MANY = 100_000
# A turn has some milliseconds' work, the largest 56; without turns these take 0.1 s to 2 s, all on one machine.
TURN_S = 0.09
ACL_FILTER = {
    "resource_type_filter": 2, "pattern_type_filter": 3, "principal_filter": None, "host_filter": None, "operation": 1,
    "permission_type": 1,
}  # fmt: skip
TOPIC, BROKER = 2, 4
NO_RIGHT = int(ErrorCode.SECURITY_DISABLED)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NO_ID, NO_USER = int(ErrorCode.UNKNOWN_TOPIC_ID), int(ErrorCode.RESOURCE_NOT_FOUND)
INVALID, BAD_NAME = int(ErrorCode.INVALID_REQUEST), int(ErrorCode.INVALID_TOPIC_EXCEPTION)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    async with InsideBroker(tmp_path_factory.mktemp("broker")) as started:
        await started.create_topic("t", 1)
        yield started


async def ask(broker: InsideBroker, key: int, version: int, fields: dict[str, Any]) -> tuple[Any, float]:
    return await least_answer(broker, key, version, fields, TURN_S)


def each(made: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [made(f"no-{number}") for number in range(MANY)]


def resources(kind: int, configs: list[dict[str, Any]]) -> dict[str, Any]:
    one = each(lambda name: {"resource_type": kind, "resource_name": name, "configs": configs})
    return {"validate_only": True, "resources": one}


def of_topics(**more: Any) -> dict[str, Any]:
    return {"timeout_ms": 1000, "validate_only": True, "topics": each(lambda name: {"name": name, **more})}


def names() -> list[str]:
    return [f"no-{number}" for number in range(MANY)]


def ids() -> list[dict[str, Any]]:
    return [{"name": None, "topic_id": UUID(int=number)} for number in range(2, MANY + 2)]


def features() -> list[dict[str, Any]]:
    return each(lambda name: {"feature": name, "max_version_level": 1, "upgrade_type": 1})


def users() -> list[dict[str, Any]]:
    return each(lambda name: {"entity": [{"entity_type": "user", "entity_name": name}], "ops": []})


NO_ENTITIES = {"entries": [{"entity": [], "ops": []}] * MANY, "validate_only": True}
NUMBERS = list(range(1, MANY + 1))
MARKER = {"producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
ON_T = [{"name": "t", "partition_indexes": NUMBERS}]


# The requests are made by the tests: both of pytest's workers would have all of them in memory until they end.
@pytest.mark.parametrize(
    ("key", "version", "fields", "told", "code"),
    [
        (33, 1, lambda: resources(TOPIC, []), "responses", UNKNOWN),
        (44, 0, lambda: resources(TOPIC, []), "responses", UNKNOWN),
        (49, 0, lambda: {"entries": users(), "validate_only": True}, "entries", 0),
        (49, 0, lambda: NO_ENTITIES, "entries", INVALID),
        (37, 1, lambda: of_topics(count=2, assignments=None), "results", UNKNOWN),
        (20, 5, lambda: {"topic_names": names(), "timeout_ms": 1000}, "responses", UNKNOWN),
        (20, 6, lambda: {"topics": ids(), "timeout_ms": 1000}, "responses", NO_ID),
        (50, 0, lambda: {"users": [{"name": name} for name in names()]}, "results", NO_USER),
        (
            57,
            1,
            lambda: {"timeout_ms": 1000, "feature_updates": features(), "validate_only": True},
            "results",
            INVALID,
        ),
        (
            31,
            1,
            lambda: {"filters": each(lambda name: ACL_FILTER | {"resource_name_filter": name})},
            "filter_results",
            NO_RIGHT,
        ),
    ],
)
async def test_many_things_are_changed(
    broker: InsideBroker, key: int, version: int, fields: Callable[[], dict[str, Any]], told: str, code: int
) -> None:
    answer, longest_s = await ask(broker, key, version, fields())
    found = getattr(answer, told)
    assert len(found) == MANY
    assert {one.error_code for one in found} == {code}
    assert longest_s < TURN_S


async def test_many_topics_are_checked(broker: InsideBroker) -> None:
    fields = of_topics(num_partitions=1, replication_factor=1, assignments=[], configs=[])
    for topic in fields["topics"]:
        topic["name"] += "!"
    answer, longest_s = await ask(broker, 19, 5, fields)
    assert [one.name for one in answer.topics] == [topic["name"] for topic in fields["topics"]]
    assert {one.error_code for one in answer.topics} == {BAD_NAME}
    assert longest_s < TURN_S


@pytest.mark.parametrize("named", [{"num_partitions": MANY, "replication_factor": 1}, {"assignments": MANY}])
async def test_a_topic_of_many_partitions_is_checked(broker: InsideBroker, named: dict[str, Any]) -> None:
    topic = {"name": "many", "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []} | named
    if "assignments" in named:
        topic["assignments"] = [{"partition_index": number, "broker_ids": [1]} for number in range(MANY)]
    fields = {"topics": [topic], "timeout_ms": 1000, "validate_only": True}
    answer, longest_s = await ask(broker, 19, 5, fields)
    assert [(one.error_code, one.num_partitions) for one in answer.topics] == [(0, MANY)]
    assert longest_s < TURN_S


@pytest.mark.parametrize("assignments", [None, [{"broker_ids": [1]}] * (MANY - 1)])
async def test_a_topic_is_given_many_partitions(broker: InsideBroker, assignments: list[dict[str, Any]] | None) -> None:
    topic = {"name": "t", "count": MANY, "assignments": assignments}
    fields = {"topics": [topic], "timeout_ms": 1000, "validate_only": True}
    answer, longest_s = await ask(broker, 37, 1, fields)
    assert [one.error_code for one in answer.results] == [0]
    assert longest_s < TURN_S


async def test_many_topics_are_deleted_by_one_without_rights(tmp_path: Path) -> None:
    """Each refusal is a line of the audit log."""
    acls = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    async with InsideBroker(tmp_path, acls | {"super.users": "User:admin"}) as denying:
        answer, longest_s = await ask(denying, 20, 5, {"topic_names": names(), "timeout_ms": 1000})
    assert {one.error_code for one in answer.responses} == {int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    assert len(answer.responses) == MANY
    assert longest_s < TURN_S


async def test_a_topic_that_no_znode_can_hold_is_refused(broker: InsideBroker) -> None:
    topic = {"name": "many", "num_partitions": 2**31 - 1, "replication_factor": 1, "assignments": [], "configs": []}
    for key, more in ((19, {}), (37, {"name": "t", "count": 2**31 - 1, "assignments": None})):
        fields = {"topics": [topic | more], "timeout_ms": 1000, "validate_only": True}
        answer, _ = await ask(broker, key, 1, fields)
        (one,) = answer.topics if key == 19 else answer.results
        assert one.error_code == int(ErrorCode.INVALID_PARTITIONS)


@pytest.mark.parametrize(("key", "version"), [(33, 1), (44, 0)])
@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1")])
async def test_many_settings_of_one_thing(broker: InsideBroker, key: int, version: int, kind: int, name: str) -> None:
    configs = each(lambda setting: {"name": setting, "value": "1", "config_operation": 0})
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer, longest_s = await ask(broker, key, version, {"resources": [resource], "validate_only": True})
    (told,) = answer.responses
    assert told.error_code == int(ErrorCode.INVALID_CONFIG)
    assert told.error_message.startswith("no-0: ")
    assert longest_s < TURN_S


async def test_many_quotas_of_one_user_the_last_of_which_counts(broker: InsideBroker) -> None:
    ops = [{"key": "request_percentage", "value": float(number), "remove": False} for number in range(4 * MANY)]
    ops += [{"key": "no-quota", "value": 0.0, "remove": True}]
    user = [{"entity_type": "user", "entity_name": "u"}]
    for last, values in ([], [("request_percentage", 4 * MANY - 1.0)]), ([ops[0] | {"remove": True}], []):
        answer, longest_s = await ask(broker, 49, 0, {"entries": [{"entity": user, "ops": ops + last}]})
        assert [one.error_code for one in answer.entries] == [0]
        assert longest_s < TURN_S
        answer, _ = await ask(broker, 48, 0, {"components": [], "strict": False})
        assert [(v.key, v.value) for entry in answer.entries for v in entry.values] == values


async def test_many_partitions_are_moved_listed_and_elected(broker: InsideBroker) -> None:
    moves = [{"partition_index": number, "replicas": [1]} for number in NUMBERS]
    moved, longest_s = await ask(broker, 45, 0, {"topics": [{"name": "t", "partitions": moves}], "timeout_ms": 1000})
    (topic,) = moved.responses
    assert {p.error_code for p in topic.partitions} == {UNKNOWN}
    assert len(topic.partitions) == MANY
    assert longest_s < TURN_S
    listed, longest_s = await ask(broker, 46, 0, {"topics": ON_T, "timeout_ms": 1000})
    assert listed.topics == []
    assert longest_s < TURN_S
    asked = [{"topic": "t", "partitions": [0, *NUMBERS, 0]}]
    elected, longest_s = await ask(broker, 43, 1, {"election_type": 0, "topic_partitions": asked, "timeout_ms": 1000})
    (topic,) = elected.replica_election_results
    assert [p.partition_id for p in topic.partition_result] == [0, *NUMBERS]
    assert [p.error_code for p in topic.partition_result[:2]] == [int(ErrorCode.ELECTION_NOT_NEEDED), UNKNOWN]
    assert longest_s < TURN_S


async def test_many_replicas_of_one_partition(broker: InsideBroker) -> None:
    """With each compared to each this takes minutes."""
    move = {"partition_index": 0, "replicas": list(range(MANY))}
    answer, longest_s = await ask(broker, 45, 0, {"topics": [{"name": "t", "partitions": [move]}], "timeout_ms": 1000})
    (topic,) = answer.responses
    assert [p.error_code for p in topic.partitions] == [int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    assert longest_s < 1


@pytest.mark.parametrize(
    "made",
    [
        lambda: [MARKER | {"producer_id": 1, "topics": [*ON_T, *ON_T]}],
        lambda: [MARKER | {"producer_id": n, "topics": [{"name": "t", "partition_indexes": [1]}]} for n in NUMBERS],
        lambda: [MARKER | {"producer_id": n, "topics": []} for n in NUMBERS],
    ],
)
async def test_many_markers(broker: InsideBroker, made: Callable[[], list[dict[str, Any]]]) -> None:
    markers = made()
    answer, longest_s = await ask(broker, 27, 0, {"markers": markers})
    assert len(answer.markers) == len(markers)
    told = [p for marker in answer.markers for topic in marker.topics for p in topic.partitions]
    assert len(told) == (MANY if markers[0]["topics"] else 0)
    assert {p.error_code for p in told} <= {UNKNOWN}
    assert longest_s < TURN_S
