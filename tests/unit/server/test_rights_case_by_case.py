"""Rights in answers that have more than one part: ids, several groups, transactions, any topic (facts §18.5)."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.records.batch import Record, build
from logyard.broker.znodes.acls import Operation, PatternType, ResourceType
from tests.support.principals import Acl, Client, Secured, acl

A, B = "User:a", "User:b"
Op, T, G, C, X = (
    Operation,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
CLUSTER, PREFIXED = "kafka-cluster", PatternType.PREFIXED
NOT_FOR_YOU, NO_SUCH_ID = 29, 100


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
    async with Secured(tmp_path, monkeypatch, **settings) as made:
        await made.create_topic("one", 1)
        await made.create_topic("two", 2)
        await made.create_topic("three", 3)
        yield made


async def id_of(client: Client, name: str) -> uuid.UUID:
    (topic,) = (await client.ask("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)).topics
    found: uuid.UUID = topic.topic_id
    return found


# -- topic ids


async def fetched(client: Client, topic_id: uuid.UUID, replica: int = -1) -> tuple[int, list[int]]:
    """Ask by an id in the newest version; returns the error of the whole answer and those of its partitions."""
    part = {
        "partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1,
        "last_fetched_epoch": -1, "log_start_offset": -1,
    }  # fmt: skip
    head: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}
    if replica >= 0:
        head["replica_state"] = {"replica_id": replica, "replica_epoch": -1}
    answer = await client.ask("Fetch", **head, topics=[{"topic_id": topic_id, "partitions": [part]}])
    return answer.error_code, [p.error_code for t in answer.responses for p in t.partitions]


async def test_fetching_by_id_without_the_right(broker: Secured) -> None:
    a, root = await broker.client(A), await broker.client("User:root")
    known = await id_of(root, "one")
    broker.put(acl(B, Op.ALL, T, "*"))
    assert await fetched(a, known) == (0, [NOT_FOR_YOU])
    assert await fetched(a, uuid.uuid4()) == (0, [NO_SUCH_ID])
    broker.put(acl(A, Op.READ, T, "one"))
    assert await fetched(a, known) == (0, [0])
    assert await fetched(a, known, replica=1) == (0, [NOT_FOR_YOU])
    broker.put(acl(A, Op.CLUSTER_ACTION, C, CLUSTER))
    assert NOT_FOR_YOU not in (await fetched(a, known, replica=1))[1]


async def test_an_id_that_is_not_there_is_told_to_everybody(broker: Secured) -> None:
    a = await broker.client(A)
    unknown = {"name": None, "topic_id": uuid.uuid4()}
    for given in ([acl(B, Op.ALL, T, "*")], [acl(A, Op.DESCRIBE, T, "*")], [acl(A, Op.DELETE, T, "*")]):
        broker.put(*given)
        (deleted,) = (await a.ask("DeleteTopics", topics=[unknown], timeout_ms=0)).responses
        assert deleted.error_code == NO_SUCH_ID
        (shown,) = (await a.ask("Metadata", topics=[unknown], allow_auto_topic_creation=False)).topics
        assert (shown.error_code, shown.name) == (NO_SUCH_ID, None)


async def test_who_has_no_right_is_told_the_clusters_id(broker: Secured) -> None:
    answer = await (await broker.client(A)).ask("Metadata", topics=[], allow_auto_topic_creation=False)
    assert answer.cluster_id
    assert (answer.topics, len(answer.brokers)) == ([], 1)


async def test_super_users_are_denied_nothing(broker: Secured) -> None:
    root, a = await broker.client("User:root"), await broker.client(A)
    broker.put(*(acl("User:*", Op.ALL, kind, name, allows=False) for kind, name in ((T, "*"), (G, "*"), (C, CLUSTER))))
    for client, topic, cluster, some in ((root, 0, 0, 0), (a, NOT_FOR_YOU, 31, 31)):
        (shown,) = (await client.ask("Metadata", topics=[{"name": "one"}], allow_auto_topic_creation=False)).topics
        assert shown.error_code == topic
        assert (await client.ask("ListPartitionReassignments", timeout_ms=0, topics=None)).error_code == cluster
        answer = await client.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
        assert answer.error_code == some


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_operations_on_the_cluster_are_those_that_are_allowed(broker: Secured, version: int) -> None:
    a = await broker.client(A)
    asked = {"topics": [], "allow_auto_topic_creation": False, "include_cluster_authorized_operations": True}
    broker.put(acl(B, Op.ALL, C, CLUSTER))
    assert (await a.ask("Metadata", version, **asked)).cluster_authorized_operations == 0
    broker.put(acl(A, Op.DESCRIBE, C, CLUSTER), acl(A, Op.ALTER, C, CLUSTER))
    assert (await a.ask("Metadata", version, **asked)).cluster_authorized_operations == 1 << 8 | 1 << 7
    described = await a.ask("DescribeCluster", include_cluster_authorized_operations=True, endpoint_type=1)
    assert described.cluster_authorized_operations == 1 << 8 | 1 << 7


async def test_operations_on_groups_and_topics_are_those_that_are_allowed(broker: Secured) -> None:
    a, root = await broker.client(A), await broker.client("User:root")
    for group in ("first", "second", "third"):
        await commit(root, group, {"one": 1})
    all_of_a_group, all_of_a_topic = 1 << 3 | 1 << 6 | 1 << 8, 3576
    broker.put(
        acl(A, Op.ALL, G, "first"), acl(A, Op.DESCRIBE, G, "second"), acl(A, Op.DELETE, G, "third"),
        acl(A, Op.ALL, T, "one"), acl(A, Op.DESCRIBE, T, "two"), acl(A, Op.DELETE, T, "three"),
    )  # fmt: skip
    names = ["first", "second", "third"]
    groups = (await a.ask("DescribeGroups", groups=names, include_authorized_operations=True)).groups
    assert [(g.error_code, g.authorized_operations) for g in groups] == [
        (0, all_of_a_group), (0, 1 << 8), (0, 1 << 8 | 1 << 6)
    ]  # fmt: skip
    unasked = (await a.ask("DescribeGroups", groups=names, include_authorized_operations=False)).groups
    assert {g.authorized_operations for g in unasked} == {-(2**31)}
    named = [{"name": name} for name in ("one", "two", "three")]
    asked: dict[str, Any] = {"topics": named, "allow_auto_topic_creation": False}
    topics = (await a.ask("Metadata", **asked, include_topic_authorized_operations=True)).topics
    assert {t.name: t.topic_authorized_operations for t in topics} == {
        "one": all_of_a_topic, "two": 1 << 8, "three": 1 << 8 | 1 << 6
    }  # fmt: skip
    plain = (await a.ask("Metadata", **asked, include_topic_authorized_operations=False)).topics
    assert {t.topic_authorized_operations for t in plain} == {-(2**31)}


# -- several groups


async def commit(root: Client, group: str, topics: dict[str, int]) -> None:
    fields = {"committed_offset": 15, "committed_leader_epoch": 1, "committed_metadata": "m"}
    wanted = [
        {"name": name, "partitions": [{"partition_index": n, **fields} for n in range(count)]}
        for name, count in topics.items()
    ]
    async with asyncio.timeout(30):
        while True:
            await root.ask("FindCoordinator", key_type=0, coordinator_keys=[group])
            answer = await root.ask(
                "OffsetCommit", group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=wanted
            )
            if not answer.topics[0].partitions[0].error_code:
                return
            await asyncio.sleep(0.02)


async def test_offsets_of_several_groups_are_answered_by_the_rights_on_each(broker: Secured) -> None:
    """A refused topic that is named has its error in each partition; one that is not named is left out."""
    a, root = await broker.client(A), await broker.client("User:root")
    topics = {"one": 1, "two": 2, "three": 3}
    for group in ("first", "second", "third", "all", "closed"):
        await commit(root, group, topics)

    def named(*names: str) -> list[dict[str, Any]]:
        return [{"name": name, "partition_indexes": list(range(topics[name]))} for name in names]

    asked = [
        {"group_id": "first", "topics": named("one")},
        {"group_id": "second", "topics": named("one", "two")},
        {"group_id": "third", "topics": named("one", "two", "three")},
        {"group_id": "all", "topics": None},
        {"group_id": "closed", "topics": None},
    ]

    async def found() -> dict[str, Any]:
        answer = await a.ask("OffsetFetch", groups=asked, require_stable=False)
        return {
            group.group_id: group.error_code
            or {
                topic.name: {
                    (p.error_code, p.committed_offset, p.committed_leader_epoch, p.metadata) for p in topic.partitions
                }
                for topic in group.topics
            }
            for group in answer.groups
        }

    there, hidden = {(0, 15, 1, "m")}, {(NOT_FOR_YOU, -1, -1, "")}
    rights = [acl(A, Op.READ, G, group) for group in ("first", "second", "all")]
    rights.append(acl(A, Op.DESCRIBE, T, "one"))
    broker.put(*rights)
    assert await found() == {
        "first": {"one": there},
        "second": {"one": there, "two": hidden},
        "third": 30,
        "all": {"one": there},
        "closed": 30,
    }
    rights += [acl(A, Op.READ, G, "third"), acl(A, Op.READ, G, "closed"), acl(A, Op.DESCRIBE, T, "two")]
    broker.put(*rights)
    answer = await found()
    assert answer["third"] == {"one": there, "two": there, "three": hidden}
    assert answer["all"] == answer["closed"] == {"one": there, "two": there}
    broker.put(*rights, acl(A, Op.DESCRIBE, T, "three"))
    assert set((await found())["third"]) == set((await found())["closed"]) == set(topics)
    assert (await found())["third"]["three"] == there


# -- transactions


async def begin(root: Client, transactional_id: str, topic: str) -> None:
    async with asyncio.timeout(30):
        while True:
            await root.ask("FindCoordinator", key_type=1, coordinator_keys=[transactional_id])
            made = await root.ask("InitProducerId", 4, transactional_id=transactional_id, transaction_timeout_ms=60_000)
            if not made.error_code:
                break
            await asyncio.sleep(0.02)
        pair = {"transactional_id": transactional_id, "producer_id": made.producer_id, "producer_epoch": 0}
        fields = {f"v3_and_below_{key}": value for key, value in pair.items()}
        fields["v3_and_below_topics"] = [{"name": topic, "partitions": [0]}]
        answer = await root.ask("AddPartitionsToTxn", 3, **fields)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0


async def test_transactions_are_listed_and_described_by_their_rights(broker: Secured) -> None:
    a, root = await broker.client(A), await broker.client("User:root")
    await begin(root, "x", "one")

    async def listed() -> tuple[int, list[str]]:
        answer = await a.ask("ListTransactions", state_filters=[], producer_id_filters=[])
        return answer.error_code, [state.transactional_id for state in answer.transaction_states]

    async def described() -> tuple[int, str, list[str]]:
        (state,) = (await a.ask("DescribeTransactions", transactional_ids=["x"])).transaction_states
        return state.error_code, state.transaction_state, [topic.topic for topic in state.topics]

    broker.put(acl(A, Op.WRITE, X, "x"), acl(A, Op.WRITE, T, "one"))
    assert (await listed(), await described()) == ((0, ["x"]), (0, "Ongoing", ["one"]))
    broker.put(acl(A, Op.WRITE, X, "x"))  # the topic is left out
    assert (await listed(), await described()) == ((0, ["x"]), (0, "Ongoing", []))
    broker.put(acl(A, Op.WRITE, T, "one"))
    assert (await listed(), await described()) == ((0, []), (53, "", []))
    broker.put(acl(A, Op.DESCRIBE, X, "x"))
    assert (await listed(), await described()) == ((0, ["x"]), (0, "Ongoing", []))


# -- any topic will do: an idempotent producer's id, and what it writes with it

EVERYWHERE = acl(A, Op.WRITE, T, "*", allows=False)
ANY_TOPIC: list[tuple[list[Acl], bool]] = [
    ([acl(A, Op.DESCRIBE, T, "one")], False),
    ([acl(A, Op.DESCRIBE, T, "one"), acl(A, Op.WRITE, T, "one")], True),
    ([acl(A, Op.DESCRIBE, T, "one")], False),  # taken away again
    ([acl(A, Op.READ, T, "one")], False),
    ([acl(A, Op.IDEMPOTENT_WRITE, C, CLUSTER)], True),
    ([acl(A, Op.ALL, C, CLUSTER)], True),
    # Denies of something else: another operation, another topic, another user, a group.
    (
        [
            acl(A, Op.WRITE, T, "one"),
            acl(A, Op.READ, T, "one", allows=False),
            acl(A, Op.WRITE, T, "two", allows=False),
            acl(B, Op.WRITE, T, "one", allows=False),
            acl(A, Op.WRITE, G, "on", allows=False, kind=PREFIXED),
        ],
        True,
    ),
    ([acl(A, Op.WRITE, T, "one"), acl(A, Op.WRITE, T, "one", allows=False)], False),
    ([acl(A, Op.WRITE, T, "o", kind=PREFIXED), acl(A, Op.WRITE, T, "one")], True),
    ([acl(A, Op.WRITE, T, "o", kind=PREFIXED), acl(A, Op.WRITE, T, "one"), EVERYWHERE], False),
    ([acl(A, Op.WRITE, T, "*"), EVERYWHERE], False),
    ([acl(A, Op.WRITE, T, "o", kind=PREFIXED, allows=False), acl(A, Op.WRITE, T, "one")], False),
    ([acl(A, Op.WRITE, T, "o", kind=PREFIXED, allows=False), acl(A, Op.WRITE, T, "two")], True),
]


async def test_an_idempotent_producer_may_write_to_some_topic(broker: Secured) -> None:
    a = await broker.client(A)
    wrong = []
    for number, (given, is_allowed) in enumerate(ANY_TOPIC):
        broker.put(*given)
        answer = await a.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
        if answer.error_code != (0 if is_allowed else 31):
            wrong.append((number, answer.error_code))
    assert wrong == []


async def test_a_producer_that_is_refused_goes_on_when_it_may(broker: Secured) -> None:
    """On one connection: no id, then an id and a record; the next record without the right; then again."""
    a = await broker.client(A)
    init = {"transactional_id": None, "transaction_timeout_ms": 0}
    broker.put(EVERYWHERE)
    assert (await a.ask("InitProducerId", 4, **init)).error_code == 31
    broker.put(acl(A, Op.WRITE, T, "o", kind=PREFIXED), acl(A, Op.WRITE, T, "one"))
    made = await a.ask("InitProducerId", 4, **init)

    async def produced(sequence: int) -> int:
        data = build([Record(0, 1, b"k", b"v")], producer_id=made.producer_id, producer_epoch=0, base_sequence=sequence)
        part = [{"index": 0, "records": bytes(data)}]
        fields = {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": "one", "partition_data": part}]}
        answer = await a.ask("Produce", 9, transactional_id=None, **fields)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    assert await produced(0) == 0
    broker.put(acl(A, Op.DESCRIBE, T, "one"))
    assert [await produced(1), await produced(1)] == [NOT_FOR_YOU, NOT_FOR_YOU]
    broker.put(acl(A, Op.WRITE, T, "one"))
    assert await produced(1) == 0
