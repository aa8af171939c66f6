"""A follower's link knows the topics of its session by name, and no others, however many come and go."""

import random
import uuid

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import FollowerFetch, FollowerFetchAnswer, PartitionFetch
from logyard.broker.replication.fetch.followed_topics import FollowedTopics
from logyard.broker.replication.follower.session import FollowerSession


def ask(topic: str, partition: int, topic_id: uuid.UUID, offset: int = 0) -> PartitionFetch:
    return PartitionFetch(TopicPartition(topic, partition), offset, 1000, topic_id=topic_id)


class _Follower:
    """A session whose requests the topics are told of."""

    def __init__(self) -> None:
        self.session, self.topics = FollowerSession(), FollowedTopics()

    def fetch(self, wanted: list[PartitionFetch], removed: list[TopicPartition], *, fails: bool = False) -> None:
        session = self.session
        if session.is_full:
            kept = {tp: sent for tp, sent in session.sent.items() if tp not in removed}
            session.open(list({**kept, **{one.tp: one for one in wanted}}.values()))
            sending = list(session.sent.values())
            forgotten: list[tuple[TopicPartition, uuid.UUID]] = []
        else:
            sending, forgotten = session.change(wanted, removed)
        self.topics.asked(FollowerFetch(1, 1, 0, 0, 0, session.id, session.epoch, sending, forgotten))
        if fails:
            session.failed()
        else:
            session.answered(FollowerFetchAnswer(ErrorCode.NONE, 7, ()))

    def check(self) -> None:
        self.knows({one.topic_id: tp.topic for tp, one in self.session.sent.items()})

    def knows(self, names: dict[uuid.UUID, str]) -> None:
        assert len(self.topics) == len(names)
        assert {topic_id: self.topics.name(topic_id) for topic_id in names} == names


def test_a_topic_is_forgotten_with_its_last_partition() -> None:
    follower, kept, gone = _Follower(), uuid.UUID(int=1), uuid.UUID(int=2)
    follower.fetch([ask("kept", 0, kept), ask("gone", 0, gone), ask("gone", 1, gone)], [])
    follower.fetch([], [TopicPartition("gone", 0)])
    follower.knows({kept: "kept", gone: "gone"})
    follower.fetch([], [TopicPartition("gone", 1)])
    follower.knows({kept: "kept"})


def test_topics_that_come_and_go_leave_nothing() -> None:
    follower = _Follower()
    follower.fetch([ask("kept", 0, uuid.UUID(int=1))], [])
    for number in range(2, 1000):
        follower.fetch([ask("often", 0, uuid.UUID(int=number), number)], [])
        follower.knows({uuid.UUID(int=1): "kept", uuid.UUID(int=number): "often"})


def test_partitions_without_a_topic_id_have_no_name_to_look_up() -> None:
    follower = _Follower()
    follower.fetch([ask("old", 0, uuid.UUID(int=0))], [])
    follower.knows({})
    assert follower.topics.name(uuid.UUID(int=0)) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_names_are_those_of_the_session(seed: int) -> None:
    rng, follower = random.Random(seed), _Follower()
    ids = {f"t{number}": uuid.UUID(int=number + 1) for number in range(5)}
    for step in range(200):
        topic = rng.choice(list(ids))
        if rng.random() < 0.1:
            ids[topic] = uuid.UUID(int=1000 + step)  # deleted and created again
            wanted = [ask(topic, number, ids[topic]) for number in range(3)]
        else:
            wanted = [ask(topic, rng.randrange(3), ids[topic], step)]
        removed = [tp for tp in follower.session.sent if rng.random() < 0.1 and tp.topic != topic]
        follower.fetch(wanted, removed, fails=rng.random() < 0.05)
        follower.check()
