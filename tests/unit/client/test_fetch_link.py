"""A follower's link to its leader over a real connection: what it makes of the leader's answers."""

from typing import Any
from uuid import UUID

import pytest

from logyard.broker.client.fetch_link import ReplicaFetchLink
from logyard.broker.errors import ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, TopicPartition
from logyard.broker.replication.events import EpochQuery, FetchedPartition, FollowerFetch, OffsetQuery, PartitionFetch
from logyard.broker.replication.fetch import wire
from tests.support.scripted_broker import Answer, Asked, ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LATER: Any = 119  # what a later Kafka may answer


def link(broker: ScriptedBroker) -> ReplicaFetchLink:
    return ReplicaFetchLink(1, lambda _: broker.info, "PLAINTEXT", 9, 5.0)


def fetched(asked: Asked, partitions: list[FetchedPartition], error: int = 0) -> bytes:
    """A leader's answer, with a session if there is no error."""
    session_id = 0 if error else 3
    frame = wire.answer(asked.version, asked.correlation_id, partitions, error_code=error, session_id=session_id)
    return b"".join(bytes(part) for part in frame)  # type: ignore[arg-type]  # nothing is sent from files


@pytest.mark.parametrize("topic_id", [ZERO_TOPIC_ID, UUID(int=7)], ids=["by name", "by id"])
async def test_an_error_that_is_unknown_here_is_that_of_its_partition_alone(topic_id: UUID) -> None:
    """The whole answer could not be read, and no partition of the leader was replicated any more."""

    def answered(asked: Asked) -> Answer:
        found = [FetchedPartition(T0, LATER, topic_id=topic_id), FetchedPartition(T1, records=b"r", topic_id=topic_id)]
        return fetched(asked, found)

    async with ScriptedBroker(answered) as broker:
        follower = link(broker)
        asks = [PartitionFetch(tp, 0, 100, topic_id=topic_id) for tp in (T0, T1)]
        request = FollowerFetch(9, 1, 10, 1, 1000, 0, 0, asks, uses_topic_ids=topic_id != ZERO_TOPIC_ID)
        answer = await follower.fetch(request)
        follower.close()
    assert [(each.tp, each.error) for each in answer.partitions] == [
        (T0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (T1, ErrorCode.NONE),
    ]


async def test_so_is_one_of_the_whole_fetch_and_of_a_look_up() -> None:
    def answered(asked: Asked) -> Answer:
        if asked.api_key == 1:
            return fetched(asked, [], LATER)
        if asked.api_key == 2:
            return {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": LATER}]}]}
        return {"topics": [{"topic": "t", "partitions": [{"partition": 0, "error_code": LATER}]}]}

    async with ScriptedBroker(answered) as broker:
        follower = link(broker)
        whole = await follower.fetch(FollowerFetch(9, 1, 10, 1, 1000, 0, 0, [], uses_topic_ids=False))
        (offset,) = await follower.list_offsets([OffsetQuery(T0, -1)])
        (epoch,) = await follower.offsets_for_leader_epoch([EpochQuery(T0, 1)])
        follower.close()
    assert (whole.error, offset.error, epoch.error) == (ErrorCode.UNKNOWN_SERVER_ERROR,) * 3
