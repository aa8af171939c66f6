"""Sessions to which a client adds partitions that this broker does not have, fetch after fetch."""

import itertools

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import FetchParams, PartitionFetch
from logyard.broker.replication.fetch.sessions import PARTITIONS_BESIDES, FetchSessions
from tests.support.replica_world import T0, World

PARAMS = FetchParams(0, 1, 1000, -1)
AT_ONCE = 1000


def asks(topic: str, first: int, count: int = AT_ONCE) -> list[PartitionFetch]:
    return [PartitionFetch(TopicPartition(topic, first + number), 0, 1000) for number in range(count)]


def test_one_that_has_grown_too_large_is_forgotten() -> None:
    world = World(fetch_session_slots_max=2, fetch_session_eviction_ms=1000)
    world.tell(world.order())
    sessions = FetchSessions(world.replicas.hosted, itertools.count(100).__next__)
    context = sessions.open(PARAMS, 0, 0, [PartitionFetch(T0, 0, 1000)], uses_topic_ids=False)
    found = world.replicas.fetching.fetch(PARAMS, context.source)
    assert isinstance(found, list)
    _, session_id, _ = context.finish(found)
    for number in range(PARTITIONS_BESIDES // AT_ONCE):
        more = asks("no-such-topic", number * AT_ONCE)
        context = sessions.open(PARAMS, session_id, number + 1, more, uses_topic_ids=False)
        found = world.replicas.fetching.fetch(PARAMS, context.source)
        assert isinstance(found, list)
        assert len(found) >= AT_ONCE
        assert context.finish(found)[:2] == (ErrorCode.NONE, session_id)
    one_too_many = asks("others", 0)
    context = sessions.open(PARAMS, session_id, PARTITIONS_BESIDES // AT_ONCE + 1, one_too_many, uses_topic_ids=False)
    assert context.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    assert world.partition(T0).observers == {}
