"""The ISR: the tables of Kafka's own tests, and changes through the controller (facts §10, §22)."""

from typing import Any

import pytest

from logyard.broker import tasks
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication import replicas
from logyard.broker.replication.isr import NEVER_MS, Heartbeat, InSync, RemoteReplica, Settlement, out_of_sync, settle
from logyard.broker.replication.ports import IsrChangeResult
from tests.support.replica_world import T0, World, follower_fetch, produce

LAG = 100


def remote_at(end: int, caught_up_ms: int, broker_id: int = 2) -> Any:
    remote = RemoteReplica(broker_id)
    remote.log_end_offset, remote.last_caught_up_ms = end, caught_up_ms
    return remote


@pytest.mark.parametrize(
    ("follower_end", "silent_ms", "out"),
    [
        (14, 150, True),  # behind and silent
        (15, 150, False),  # at the end: may be silent for ever
        (14, 100, False),  # behind, but not for longer than the lag
        (14, 101, True),
        (-1, 10**6, True),  # never fetched
    ],
)
def test_out_of_sync(follower_end: int, silent_ms: int, out: Any) -> None:
    now = 10**7
    remotes = {2: remote_at(follower_end, now - silent_ms)}
    assert out_of_sync((1, 2), 1, remotes, 15, now, LAG) == ((2,) if out else ())


def test_an_unknown_member_is_out_of_sync() -> None:
    assert out_of_sync((1, 2, 3), 1, {2: remote_at(5, 0)}, 5, 0, LAG) == (3,)


def test_a_follower_with_all_of_its_previous_fetch_is_caught_up() -> None:
    """Kafka's rule for a follower that is always one fetch behind a busy leader."""
    remote = RemoteReplica(2)
    remote.record_fetch(10, 0, 1000, 10, -1)
    assert remote.last_caught_up_ms == 1000
    remote.record_fetch(12, 0, 1100, 20, -1)
    assert remote.last_caught_up_ms == 1000, "12 of 20, and at the fetch before the end was 10: caught up then"
    remote.record_fetch(20, 0, 1200, 30, -1)
    assert remote.last_caught_up_ms == 1100
    remote.record_fetch(25, 0, 1300, 40, -1)
    assert remote.last_caught_up_ms == 1100, "25 is less than the 30 of the previous fetch"
    remote.record_fetch(40, 0, 1400, 40, -1)
    assert remote.last_caught_up_ms == 1400


def test_an_idle_follower_is_caught_up_until_its_last_heartbeat() -> None:
    remote, beat = RemoteReplica(2), Heartbeat()
    remote.record_fetch(10, 0, 1000, 10, -1)
    remote.heartbeat, beat.last_fetch_ms = beat, 5000
    remote.settle_idle(10)
    assert (remote.last_caught_up_ms, remote.last_fetch_ms) == (5000, 5000)
    beat.last_fetch_ms = 6000
    remote.settle_idle(11)
    assert remote.last_caught_up_ms == 5000, "it is behind: its fetches are looked at one by one"


def test_a_new_epoch_counts_members_as_caught_up() -> None:
    member, other = remote_at(7, 5), remote_at(7, 5, 3)
    member.start_epoch(1000, 9, in_isr=True, new_leader=True)
    other.start_epoch(1000, 9, in_isr=False, new_leader=True)
    assert (member.last_caught_up_ms, member.log_end_offset) == (1000, -1)
    assert (other.last_caught_up_ms, other.log_end_offset) == (NEVER_MS, -1)
    kept = remote_at(7, 5)
    kept.start_epoch(1000, 9, in_isr=True, new_leader=False)
    assert (kept.log_end_offset, kept.last_fetch_leader_end) == (7, 9)


def test_the_maximal_isr() -> None:
    isr = InSync((1, 2))
    isr.propose_adding(3)
    assert (isr.committed, isr.maximal) == ((1, 2), {1, 2, 3})
    isr.withdraw()
    assert (isr.maximal, isr.pending) == ({1, 2}, None)
    assert isr.propose_removing((2,)).isr == (1,)
    assert isr.maximal == {1, 2}, "until the controller agrees, who is to go still counts"
    with pytest.raises(AssertionError):
        isr.propose_adding(3)


@pytest.mark.parametrize(
    ("result", "then"),
    [
        (IsrChangeResult(ErrorCode.NONE, 1, 5, (1,), 8), Settlement.COMMIT),
        (IsrChangeResult(ErrorCode.NONE, 1, 5, (1,), 7), Settlement.COMMIT),
        (IsrChangeResult(ErrorCode.NONE, 1, 5, (1,), 6), Settlement.IGNORE),
        (IsrChangeResult(ErrorCode.NONE, 1, 6, (1,), 8), Settlement.IGNORE),
        *[(IsrChangeResult(ErrorCode(code)), Settlement.WITHDRAW) for code in (55, 107)],
        *[(IsrChangeResult(ErrorCode(code)), Settlement.WAIT) for code in (3, 100, 74, 95, 42, 108)],
        *[(IsrChangeResult(ErrorCode(code)), Settlement.RETRY) for code in (-1, 41, 77, 7, 35)],
    ],
)
def test_what_the_controllers_answer_means(result: Any, then: int) -> None:
    assert settle(result, leader_epoch=5, partition_epoch=7) is then


# Through the façade


@pytest.fixture
def world() -> World:
    world = World(lag_time_max_ms=LAG)
    world.replicas.start()
    return world


def test_expansion_counts_at_once_and_commits_with_the_answer(world: World) -> None:
    world.tell(world.order(isr=(1, 2), partition_epoch=4))
    produce(world)
    follower_fetch(world, 2, 1)
    assert world.log(T0).high_watermark == 1
    follower_fetch(world, 3, 1)
    (change,) = world.submitted
    assert (change.new_isr, change.partition_epoch, change.leader_epoch) == ((1, 2, 3), 4, 0)
    produce(world)
    follower_fetch(world, 2, 2)
    assert world.log(T0).high_watermark == 1, "waits for the one that is joining"
    change.accept()
    partition = world.partition(T0)
    assert (partition.isr.committed, partition.partition_epoch) == ((1, 2, 3), 5)
    follower_fetch(world, 3, 2)
    assert world.log(T0).high_watermark == 2
    assert world.replicas.counters.isr_expands == 1


def test_a_shrink_advances_the_watermark_only_once_it_is_agreed(world: World) -> None:
    world.tell(world.order(partition_epoch=4))
    produce(world)
    pending = produce(world, acks=-1, timeout_ms=10_000)
    follower_fetch(world, 2, 2)
    world.advance(90)
    assert not world.submitted
    follower_fetch(world, 2, 2)
    world.advance(60)
    (change,) = world.submitted
    assert change.new_isr == (1, 2)
    assert not pending.done()
    change.accept()
    assert pending.result()[0].error == ErrorCode.NONE
    assert world.replicas.counters.isr_shrinks == 1
    world.advance(500)
    assert len(world.submitted) == 1


def test_lagging_followers_of_many_partitions_are_looked_for_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error about one of them keeps nobody from the others."""
    monkeypatch.setattr(replicas, "AT_ONCE", 3)
    tps = [TopicPartition("wide", number) for number in range(10)]
    world.tell(*(world.order(tp) for tp in tps))
    for tp in tps:
        produce(world, tp=tp)
    failures = tasks.failures["look at a replica"]
    looked: list[int] = []
    submit = world.submit

    def submitting(tp: TopicPartition, *more: Any) -> None:
        looked.append(len([timer for timer in world.timers if timer.due <= world.clock.monotonic()]))
        if tp == tps[4]:
            raise RuntimeError("a bug")
        submit(tp, *more)

    monkeypatch.setattr(world, "submit", submitting)
    world.advance(LAG + LAG // 2)
    assert [change.tp for change in world.submitted] == [tp for tp in tps if tp != tps[4]]
    assert tasks.failures["look at a replica"] == failures + 1
    assert looked == [1] * 9 + [0], "the next portion waits for its turn"


def test_a_follower_must_reach_the_epoch_not_only_the_watermark(world: World) -> None:
    """KAFKA-7128: the new leader's watermark stands at 0 while its epoch starts at 2."""
    produce_first = World(lag_time_max_ms=LAG)
    produce_first.tell(produce_first.order(isr=(1, 2)))
    produce(produce_first, count=2)
    produce_first.tell(produce_first.order(isr=(1, 2), leader_epoch=1, partition_epoch=1))
    follower_fetch(produce_first, 3, 1)
    assert not produce_first.submitted
    follower_fetch(produce_first, 3, 2)
    assert produce_first.submitted[0].new_isr == (1, 2, 3)


def test_a_follower_that_is_not_alive_is_not_let_in(world: World) -> None:
    world.hear([1, 2])
    world.tell(world.order(isr=(1, 2)))
    follower_fetch(world, 3, 0)
    assert not world.submitted
    world.hear([1, 2, 3])
    follower_fetch(world, 3, 0)
    assert len(world.submitted) == 1


def test_refused_as_ineligible_it_is_tried_again_with_the_next_fetch(world: World) -> None:
    world.tell(world.order(isr=(1, 2)))
    follower_fetch(world, 3, 0)
    world.submitted.pop().callback(IsrChangeResult(ErrorCode.INELIGIBLE_REPLICA))
    assert world.partition(T0).isr.pending is None
    follower_fetch(world, 3, 0)
    assert len(world.submitted) == 1
    assert world.replicas.counters.failed_isr_updates == 1


def test_a_superseded_change_waits_for_the_controller(world: World) -> None:
    world.tell(world.order(isr=(1, 2)))
    follower_fetch(world, 3, 0)
    world.submitted.pop().callback(IsrChangeResult(ErrorCode.INVALID_UPDATE_VERSION))
    follower_fetch(world, 3, 0)
    assert not world.submitted
    world.tell(world.order(isr=(1, 2), leader_epoch=1, partition_epoch=1))
    follower_fetch(world, 3, 0)
    assert len(world.submitted) == 1


def test_after_an_unknown_error_the_change_is_sent_again(world: World) -> None:
    world.tell(world.order(isr=(1, 2)))
    follower_fetch(world, 3, 0)
    world.submitted.pop().callback(IsrChangeResult(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert world.submitted[0].new_isr == (1, 2, 3)


def test_an_answer_after_the_next_leader_and_isr_is_ignored(world: World) -> None:
    world.tell(world.order(isr=(1, 2)))
    follower_fetch(world, 3, 0)
    world.tell(world.order(isr=(1,), leader_epoch=1, partition_epoch=3))
    world.submitted.pop().accept()
    partition = world.partition(T0)
    assert (partition.isr.committed, partition.partition_epoch) == ((1,), 3)


def test_one_change_at_a_time(world: World) -> None:
    world.tell(world.order(replicas=(1, 2, 3, 4), isr=(1, 2)))
    world.hear([1, 2, 3, 4])
    follower_fetch(world, 3, 0)
    follower_fetch(world, 4, 0)
    world.advance(1000)
    assert len(world.submitted) == 1
    world.submitted[0].accept()
    follower_fetch(world, 4, 0)
    assert world.submitted[1].new_isr == (1, 2, 3, 4)


def test_the_watermark_stands_still_under_the_minimum_and_moves_on_after(world: World) -> None:
    world.config = TopicConfig(min_insync_replicas=2)
    world.tell(world.order(isr=(1,)))
    produce(world)
    follower_fetch(world, 2, 1)
    assert world.log(T0).high_watermark == 0
    world.submitted[0].accept()
    assert world.log(T0).high_watermark == 1


def test_it_waits_for_live_followers_about_to_join(world: World) -> None:
    """Facts §10: replicas caught up within the lag count, although they are not in the ISR."""
    world.tell(world.order(isr=(1,)))
    follower_fetch(world, 2, 0)
    world.submitted.pop().callback(IsrChangeResult(ErrorCode.INVALID_UPDATE_VERSION))
    world.partition(T0).isr.withdraw()
    produce(world)
    assert world.log(T0).high_watermark == 0
    world.hear([1, 3])
    produce(world)
    assert world.log(T0).high_watermark == 2


# Whatever can hold the watermark back also wakes it


def outside_but_caught_up(world: World) -> Any:
    """Follower 2 is at the end, alive, and outside the ISR: the watermark waits for it, as it is about to join."""
    world.tell(world.order(replicas=(1, 2), isr=(1,)))
    world.hear([1])
    follower_fetch(world, 2, 0)
    world.hear([1, 2])
    pending = produce(world, acks=-1, timeout_ms=10_000)
    assert not pending.done()
    return pending


def test_a_follower_about_to_join_holds_the_watermark_only_while_caught_up(world: World) -> None:
    pending = outside_but_caught_up(world)
    world.advance(LAG)
    assert not pending.done()
    world.advance(1)
    assert pending.result()[0].error == ErrorCode.NONE


def test_the_death_of_a_follower_about_to_join_advances_the_watermark(world: World) -> None:
    pending = outside_but_caught_up(world)
    world.hear([1])
    assert pending.result()[0].error == ErrorCode.NONE


def test_a_refused_expansion_advances_the_watermark(world: World) -> None:
    """The controller knows that the follower is shutting down: nothing waits for it, although it still fetches."""
    world.tell(world.order(replicas=(1, 2), isr=(1,)))
    follower_fetch(world, 2, 0)
    pending = produce(world, acks=-1, timeout_ms=10_000)
    world.submitted.pop().callback(IsrChangeResult(ErrorCode.INELIGIBLE_REPLICA))
    assert pending.result()[0].error == ErrorCode.NONE


def test_a_refused_follower_counts_again_after_its_restart(world: World) -> None:
    test_a_refused_expansion_advances_the_watermark(world)
    world.hear([1])
    world.hear([1, 2])
    follower_fetch(world, 2, 1)
    assert [change.new_isr for change in world.submitted] == [(1, 2)]
    world.submitted.pop().callback(IsrChangeResult(ErrorCode.INVALID_UPDATE_VERSION))
    world.tell(world.order(replicas=(1, 2), isr=(1,), leader_epoch=1, partition_epoch=1))
    world.hear([1])
    follower_fetch(world, 2, 1)
    world.hear([1, 2])
    assert not produce(world, acks=-1, timeout_ms=10_000).done()


def test_the_timer_of_a_closed_broker_does_nothing(world: World) -> None:
    pending = outside_but_caught_up(world)
    world.replicas.close()
    assert pending.result()[0].error == ErrorCode.REQUEST_TIMED_OUT
    world.advance(10_000)
    assert world.log(T0).high_watermark == 0


def test_the_check_is_due_when_the_first_follower_lags(world: World) -> None:
    world.tell(world.order(isr=(1,)))
    world.hear([1])
    follower_fetch(world, 3, 0)
    world.advance(50)
    follower_fetch(world, 2, 0)
    world.hear([1, 2])
    first = produce(world, acks=-1, timeout_ms=10_000)
    world.hear([1, 2, 3])
    second = produce(world, acks=-1, timeout_ms=10_000)
    world.hear([1, 3])
    world.advance(LAG - 50)
    assert not first.done()
    world.advance(1)
    assert [pending.result()[0].error for pending in (first, second)] == [ErrorCode.NONE] * 2
