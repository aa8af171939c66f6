"""Incremental fetch sessions on the leader (KIP-227)."""

import itertools
import uuid
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.updates import PartitionUpdate
from logyard.broker.model import LEADER_DURING_DELETE, TopicPartition
from logyard.broker.replication.events import FetchParams, Isolation, PartitionFetch
from logyard.broker.replication.fetch.session_keys import forgotten_key
from logyard.broker.replication.fetch.sessions import FetchSessions
from tests.support.disk_logs import batch, parse
from tests.support.replica_world import T0, T1, World, follower_fetch, produce

MB = 10**6


class SessionWorld(World):
    """A leader of two partitions, with two slots for fetch sessions."""

    def __init__(self) -> None:
        super().__init__(fetch_session_slots_max=2, fetch_session_eviction_ms=1000)
        self.sessions = FetchSessions(self.replicas.hosted, itertools.count(100).__next__)
        self.tell(self.order(replicas=(1, 2), isr=(1, 2)), self.order(T1, replicas=(1, 2), isr=(1, 2)))


class Client:
    """One fetching client: remembers its session's id and epoch."""

    def __init__(
        self, world: SessionWorld, replica: int = -1, wait_ms: int = 0, by_id: bool = False, allowed: Any = None
    ) -> None:
        self.world, self.replica, self.wait_ms, self.by_id = world, replica, wait_ms, by_id
        self.id = self.epoch = 0
        self.allowed = allowed or (lambda topic: True)
        self.max_bytes = MB

    def params(self) -> Any:
        isolation = Isolation.LOG_END if self.replica >= 0 else Isolation.READ_UNCOMMITTED
        return FetchParams(self.wait_ms, 1, self.max_bytes, self.replica, isolation=isolation)

    def open(self, asks: Any = (), forgotten: Any = ()) -> Any:
        return self.world.sessions.open(
            self.params(), self.id, self.epoch, asks, forgotten, uses_topic_ids=self.by_id, allowed=self.allowed
        )

    def start(self, *asks: Any, forgotten: Any = ()) -> Any:
        """Begin a fetch; returns (context, answers or a future of them)."""
        context = self.open(asks, forgotten)
        return context, self.world.replicas.fetching.fetch(self.params(), context.source)

    def fetch(self, *asks: Any, forgotten: Any = ()) -> Any:
        context = self.open(asks, forgotten)
        if context.error:
            return context.error
        return self.end(context, self.world.replicas.fetching.fetch(self.params(), context.source))

    def end(self, context: Any, answers: Any) -> Any:
        error, self.id, sent = context.finish(answers)
        if error:
            return error
        self.epoch = 0 if self.id == 0 else self.epoch + 1
        return {a.tp: a for a in sent}


def ask(tp: TopicPartition = T0, offset: int = 0, **fields: Any) -> Any:
    return PartitionFetch(tp, offset, MB, **fields)


@pytest.fixture
def world() -> SessionWorld:
    return SessionWorld()


def test_a_session_answers_only_what_changed(world: SessionWorld) -> None:
    client = Client(world, replica=2)
    assert set(client.fetch(ask(), ask(T1))) == {T0, T1}
    assert client.id == 100
    assert client.fetch() == {}
    produce(world, tp=T1)
    answers = client.fetch()
    assert [b.base for b in parse(answers[T1].records)] == [0]
    assert set(answers) == {T1}


def test_records_not_fetched_are_sent_again(world: SessionWorld) -> None:
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    produce(world)
    for _ in range(2):
        assert len(parse(client.fetch()[T0].records)) == 1
    assert set(client.fetch(ask(offset=1))) == {T0}, "the watermark moved to 1 with this very fetch"
    assert client.fetch() == {}


def test_a_partition_asked_again_is_answered_again(world: SessionWorld) -> None:
    """A follower that enters a new epoch drops the answer on its way to it, and with it a high watermark."""
    client = Client(world, replica=2)
    assert set(client.fetch(ask(), ask(T1))) == {T0, T1}
    assert set(client.fetch(ask())) == {T0}
    assert client.fetch() == {}


def test_the_topic_id_zero_is_unknown_and_harms_no_other(world: SessionWorld) -> None:
    client, nobody = Client(world, by_id=True), TopicPartition("", 0)
    for sent in (client.fetch(ask(nobody), ask(TopicPartition("", 7))), client.fetch()):
        assert [a.error for a in sent.values()] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    assert set(client.fetch(forgotten=[forgotten_key(None, None, 0)])) == {TopicPartition("", 7)}


def test_the_high_watermark_alone_is_news(world: SessionWorld) -> None:
    client = Client(world)
    client.fetch(ask(offset=0))
    produce(world)
    assert client.fetch() == {}
    follower_fetch(world, 2, 1)
    assert client.fetch()[T0].high_watermark == 1


def test_quiet_partitions_are_not_looked_at(world: SessionWorld) -> None:
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    client.fetch()
    context = client.open()
    assert list(context.source.candidates()) == []
    client.end(context, [])
    produce(world)
    context = client.open()
    assert [a.tp for a in context.source.candidates()] == [T0]


def test_a_quiet_follower_stays_caught_up_by_fetching_at_all(world: SessionWorld) -> None:
    world.replicas.start()
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    for _ in range(10):
        world.advance(10_000)
        assert client.fetch() == {}
    produce(world)
    world.advance(29_000)
    assert not world.submitted, "it was at the end when the record came"
    world.advance(30_000)
    assert [s.tp for s in world.submitted] == [T0], "now it is behind, in this partition alone"


def test_a_live_session_does_not_keep_a_removed_member_in_sync(world: SessionWorld) -> None:
    """A follower that shuts down is removed from the ISR; until it has ended, other partitions keep its session
    busy."""
    client = Client(world, replica=2)
    client.fetch(ask(leader_epoch=0), ask(T1, leader_epoch=0))
    client.fetch()
    world.tell(world.order(replicas=(1, 2), isr=(1,), leader_epoch=1, partition_epoch=1))
    client.fetch()
    client.fetch(forgotten=[("flights", 0)])
    assert produce(world, acks=-1)[0].error is ErrorCode.NONE


def test_a_request_that_forgets_a_partition_is_no_fetch_of_it(world: SessionWorld) -> None:
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    client.fetch()
    fetched = world.replicas.hosted.now_ms()
    world.advance(1000)
    client.fetch(forgotten=[("flights", 0)])
    assert world.partition(T0).remotes[2].last_caught_up_ms == fetched


def test_a_follower_outside_the_isr_is_looked_at_each_time(world: SessionWorld) -> None:
    world.tell(world.order(replicas=(1, 2), isr=(1,), leader_epoch=1, partition_epoch=1))
    world.hear([1])
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    client.fetch()
    assert not world.submitted
    world.hear([1, 2])
    client.fetch()
    assert [s.new_isr for s in world.submitted] == [(1, 2)]


def test_errors_are_repeated_and_their_end_is_news(world: SessionWorld) -> None:
    far = TopicPartition("far", 0)
    client = Client(world)
    client.fetch(ask(far), ask())
    for _ in range(2):
        assert client.fetch()[far].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.tell(world.order(far))
    assert client.fetch()[far].error is ErrorCode.NONE
    assert client.fetch() == {}


def test_retention_is_news_after_a_while(world: SessionWorld) -> None:
    world.replicas.start()
    for _ in range(2):
        produce(world)
    follower_fetch(world, 2, 2)
    client = Client(world)
    client.fetch(ask(offset=2))
    client.fetch()
    world.log(T0).advance_log_start(1)
    assert client.fetch() == {}
    world.advance(15_000)
    assert client.fetch()[T0].log_start_offset == 1
    assert client.fetch() == {}


def test_waiting_in_a_session(world: SessionWorld) -> None:
    client = Client(world, replica=2, wait_ms=500)
    client.wait_ms = 0
    client.fetch(ask(), ask(T1))
    client.fetch()
    client.wait_ms = 500
    context, pending = client.start()
    assert not pending.done()
    produce(world, tp=T1)
    world.advance(0)
    assert set(client.end(context, pending.result())) == {T1}
    context, pending = client.start(ask(T1, 1))
    world.advance(500)
    assert {tp: a.high_watermark for tp, a in client.end(context, pending.result()).items()} == {T1: 1}


def test_a_waiting_follower_is_answered_when_it_has_a_new_partition(world: SessionWorld) -> None:
    follower, consumer = Client(world, replica=2), Client(world)
    for client in (follower, consumer):
        client.fetch(ask(), ask(T1))
        client.fetch()
        client.wait_ms = 500
    (context, waiting), (_, patient) = follower.start(), consumer.start()
    world.tell(world.order(TopicPartition("new", 0), replicas=(1, 2)))
    world.advance(20)
    assert not waiting.done()
    world.advance(10)
    assert (follower.end(context, waiting.result()), patient.done()) == ({}, False)


def test_losing_the_leader_wakes_a_session(world: SessionWorld) -> None:
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    client.fetch()
    client.wait_ms = 500
    context, pending = client.start()
    world.tell(world.order(leader=2, leader_epoch=1, replicas=(1, 2)))
    world.advance(0)
    assert client.end(context, pending.result())[T0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_waiting_follower_gets_all_that_one_turn_appends(world: SessionWorld) -> None:
    """A consumer does not wait for the rest of the turn."""
    follower, consumer = Client(world, replica=2), Client(world)
    for client in (follower, consumer):
        client.fetch(ask(), ask(T1))
        client.fetch()
        client.wait_ms = 500
    context, waiting = follower.start()
    _, patient = consumer.start()
    produce(world)
    produce(world, tp=T1)
    assert not waiting.done()
    world.advance(0)
    found = follower.end(context, waiting.result())
    assert {tp: len(answer.records) > 0 for tp, answer in found.items()} == {T0: True, T1: True}
    assert not patient.done(), "nothing is committed"
    follower.start(ask(T0, 1), ask(T1, 1))
    assert patient.done()


def test_forgetting(world: SessionWorld) -> None:
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    client.fetch(forgotten=[("flights", 1)])
    produce(world, tp=T1)
    assert client.fetch() == {}
    assert world.partition(T1).observers == {}
    assert world.partition(T1).remotes[2].heartbeat is None
    client.fetch(forgotten=[("flights", 0)])
    assert len(world.sessions) == 0, "an empty session is closed"


def test_session_errors(world: SessionWorld) -> None:
    client = Client(world)
    client.fetch(ask())
    client.epoch = 5
    assert client.fetch() is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.epoch, client.by_id = 1, True
    assert client.fetch() is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.id = 4711
    assert client.fetch() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_overtaken_by_its_own_next_request(world: SessionWorld) -> None:
    client = Client(world)
    client.fetch(ask())
    context, answers = client.start()
    client.epoch = 2
    client.fetch()
    assert context.finish(answers)[0] is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_request_closes_the_old_session(world: SessionWorld) -> None:
    client = Client(world)
    client.fetch(ask())
    client.epoch = 0
    client.fetch(ask())
    assert (client.id, len(world.sessions)) == (101, 1)
    client.epoch = -1
    client.fetch(ask())
    assert (client.id, len(world.sessions)) == (0, 0)


def test_topic_ids_that_are_not_known_yet(world: SessionWorld) -> None:
    mine = uuid.UUID(int=5)
    client = Client(world, by_id=True)
    unnamed = ask(TopicPartition("", 0), topic_id=mine)
    (answer,) = client.fetch(unnamed).values()
    assert (answer.error, answer.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, mine)
    (answer,) = client.fetch().values()
    assert answer.error is ErrorCode.UNKNOWN_TOPIC_ID
    world.log(T0).topic_id = mine
    world.hear([1, 2], [PartitionUpdate(T0, 1, 0, (1, 2), (1, 2))], topic_ids={"flights": mine})
    assert client.fetch()[T0].error is ErrorCode.NONE


def test_a_topic_made_anew_is_another_topic(world: SessionWorld) -> None:
    old, new = uuid.UUID(int=5), uuid.UUID(int=6)
    world.log(T0).topic_id = old
    world.hear([1, 2], [PartitionUpdate(T0, 1, 0, (1, 2), (1, 2))], topic_ids={"flights": old})
    client = Client(world, by_id=True)
    client.fetch(ask(topic_id=old))
    world.log(T0).topic_id = new
    world.hear([1, 2], [PartitionUpdate(T0, 1, 0, (1, 2), (1, 2))], topic_ids={"flights": new})
    answers = client.fetch(ask(topic_id=new), forgotten=[(old, 0)])
    assert {(a.topic_id, a.error) for a in answers.values()} == {(new, ErrorCode.NONE)}
    produce(world)
    follower_fetch(world, 2, 1)
    assert len(parse(client.fetch()[T0].records)) == 1


def test_a_topic_whose_name_is_lost_is_forgotten_for_good(world: SessionWorld) -> None:
    """It is deleted, its id means nothing any more, and its partition changes once more when it is stopped."""
    mine, other = uuid.UUID(int=5), uuid.UUID(int=6)
    world.log(T0).topic_id = mine
    world.hear([1, 2], [PartitionUpdate(T0, 1, 0, (1, 2), (1, 2))], topic_ids={"flights": mine})
    client = Client(world, by_id=True)
    client.fetch(ask(topic_id=mine), ask(TopicPartition("", 0), topic_id=other))
    client.fetch()
    assert len(world.partition(T0).observers) == 1
    world.hear([1, 2], [PartitionUpdate(T0, LEADER_DURING_DELETE, 0, (1, 2), (1, 2))], topic_ids={"flights": mine})
    client.fetch(ask(TopicPartition("", 0), topic_id=mine))
    client.fetch(forgotten=[(mine.int, 0)])
    assert world.partition(T0).observers == {}
    world.replicas.hosted.transitioned(world.partition(T0))


def test_topics_that_the_client_may_not_read(world: SessionWorld) -> None:
    client = Client(world, allowed=lambda topic: False)
    client.wait_ms = 500
    assert client.fetch(ask())[T0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.fetch()[T0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    client.allowed, client.wait_ms = (lambda topic: True), 0
    assert client.fetch()[T0].error is ErrorCode.NONE


def test_no_partition_starves_behind_a_busy_one(world: SessionWorld) -> None:
    client = Client(world, replica=2)
    client.fetch(ask(), ask(T1))
    for tp in (T0, T1):
        for _ in range(3):
            produce(world, tp=tp)
    client.max_bytes = len(batch())
    first = client.fetch()
    (served,) = [tp for tp, a in first.items() if a.records]
    second = client.fetch(ask(served, 1))
    assert [tp for tp, a in second.items() if a.records] == [T1 if served == T0 else T0]


def test_slots_and_eviction(world: SessionWorld) -> None:
    def fresh(replica: int = -1, partitions: int = 1) -> Any:
        client = Client(world, replica=replica)
        client.fetch(*[ask(TopicPartition("flights", n)) for n in range(partitions)])
        return client

    one, two = fresh(), fresh(partitions=2)
    assert fresh().id == 0, "young consumers do not push each other out"
    follower = fresh(replica=2)
    assert follower.id != 0, "a follower takes the place of the smallest consumer"
    assert one.fetch() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    world.advance(900)
    two.fetch()
    world.advance(200)
    assert fresh(partitions=1).id != 0, "the follower's was not used for longer than the eviction time"
    assert follower.fetch() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fresh(partitions=1).id == 0, "an old session yields only to a worthier one"
    assert fresh(partitions=3).id != 0
    assert two.fetch() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.sessions.evictions == 3
