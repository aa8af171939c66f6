"""Members that have joined, and have not asked for their assignment when the rebalance time-out is over."""

from collections.abc import Sequence

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import effects as fx
from logyard.broker.groups import membership, rebalance
from logyard.broker.groups.events import Join, Sync
from logyard.broker.groups.members import Group, GroupState

RULES = membership.Rules()
SYNC_TIMER = ("sync",)


def at(ms: int) -> Now:
    return Now(ms, 1_700_000_000_000 + ms)


def request(member_id: str = "", instance_id: str | None = None) -> Join:
    return Join(member_id, instance_id, "client", "/127.0.0.1", 10_000, 60_000, "consumer", (("range", b"meta"),))


def joined_by(names: Sequence[str], static: str = "") -> Group:
    """A group of these members, the first of them leads: all await their sync. Those in `static` are static ones."""
    group = Group("g")
    for ticket, name in enumerate(names):
        instance_id = f"instance of {name}" if name in static else None
        membership.join(group, request(instance_id=instance_id), ticket, name, at(0), RULES)
    membership.timer_fired(group, ("join",), at(3000), RULES)
    membership.timer_fired(group, ("join",), at(6000), RULES)
    assert group.state is GroupState.COMPLETING
    return group


def synced_by(group: Group, member_id: str, ticket: int) -> fx.Effects:
    instance_id = group.members[member_id].instance_id
    return membership.sync(group, Sync(member_id, instance_id, 1, assignments={"a": b"A"}), ticket, 6000)


def stored(group: Group, effects: fx.Effects) -> fx.Effects:
    (store,) = [each for each in effects if isinstance(each, fx.StoreGroup)]
    return rebalance.stored(group, store, ErrorCode.NONE, at(6000), 3000)


def test_who_only_sends_heartbeats_is_dropped_from_a_stable_group_too() -> None:
    group = joined_by("ab")
    assert fx.CancelTimer(SYNC_TIMER) not in stored(group, synced_by(group, "a", 3))
    assert group.state is GroupState.STABLE
    assert membership.heartbeat(group, "b", None, 1, 7000) is ErrorCode.NONE
    membership.timer_fired(group, SYNC_TIMER, at(66_000), RULES)
    assert list(group.members) == ["a"]
    assert membership.heartbeat(group, "b", None, 1, 66_000) is ErrorCode.UNKNOWN_MEMBER_ID
    assert membership.heartbeat(group, "a", None, 1, 66_000) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_has_just_come_back_is_answered() -> None:
    group = joined_by("ab", static="b")
    stored(group, synced_by(group, "a", 3))
    membership.join(group, request(instance_id="instance of b"), 4, "b2", at(65_000), RULES)  # b2 is being stored
    effects = membership.timer_fired(group, SYNC_TIMER, at(66_000), RULES)
    assert {e.ticket: e.joined.error for e in effects if isinstance(e, fx.AnswerJoin)} == {
        4: ErrorCode.UNKNOWN_MEMBER_ID
    }
    assert list(group.members) == ["a"]


def test_no_rebalance_begins_while_only_the_record_is_waited_for() -> None:
    group = joined_by("ab")
    effects = synced_by(group, "a", 3)
    synced_by(group, "b", 4)
    assert membership.timer_fired(group, SYNC_TIMER, at(66_000), RULES) == []
    answers = stored(group, effects)
    assert {e.ticket: e.synced.error for e in answers if isinstance(e, fx.AnswerSync)} == dict.fromkeys(
        (3, 4), ErrorCode.NONE
    )
    assert fx.CancelTimer(SYNC_TIMER) in answers


def test_the_last_sync_of_a_stable_group_stops_the_timer() -> None:
    group = joined_by("abc")
    stored(group, synced_by(group, "a", 3))
    assert fx.CancelTimer(SYNC_TIMER) not in synced_by(group, "b", 4)
    assert fx.CancelTimer(SYNC_TIMER) in synced_by(group, "c", 5)
    assert membership.timer_fired(group, SYNC_TIMER, at(66_000), RULES) == []


def test_a_member_that_leaves_before_its_sync_is_not_waited_for() -> None:
    group = joined_by("ab")
    stored(group, synced_by(group, "a", 3))
    membership.timer_fired(group, ("session", "b"), at(60_000), RULES)
    membership.join(group, request("a"), 5, "unused", at(60_000), RULES)
    assert group.state is GroupState.COMPLETING
    assert group.unsynced == 1


def test_a_static_member_that_does_not_come_back_is_dropped_before_the_end_of_a_long_session() -> None:
    """Its partitions were read by nobody until then, which may be half an hour; Kafka 3.9 does not wait so long."""
    group = joined_by("ab", static="b")
    stored(group, synced_by(group, "a", 3))
    synced_by(group, "b", 4)
    membership.join(group, request(), 5, "c", at(7000), RULES)
    membership.join(group, request("a"), 6, "unused", at(7000), RULES)
    membership.timer_fired(group, ("join",), at(67_000), RULES)
    assert list(group.members) == ["a", "b", "c"]
    assert group.state is GroupState.COMPLETING
    assert group.members["b"].deadline_ms == 77_000, "its session begins anew"
    for name in "ac":
        membership.sync(group, Sync(name, None, 2), 7, 67_000)
    membership.timer_fired(group, SYNC_TIMER, at(127_000), RULES)
    assert list(group.members) == ["a", "c"]
    assert group.state is GroupState.PREPARING
