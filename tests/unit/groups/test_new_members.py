"""Members whose first join waits, while a slow member keeps a rebalance open: their clients may have gone."""

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import effects as fx
from logyard.broker.groups import membership, rebalance
from logyard.broker.groups.events import Join, Sync
from logyard.broker.groups.members import Group, GroupState
from logyard.broker.groups.membership import NEW_MEMBER_JOIN_MS

RULES = membership.Rules(initial_delay_ms=0)
HOUR_MS = 3_600_000


def at(ms: int) -> Now:
    return Now(ms, 1_700_000_000_000 + ms)


def request(member_id: str = "", session_ms: int = 10_000) -> Join:
    return Join(member_id, None, "c", "/h", session_ms, HOUR_MS, "consumer", (("range", b"meta"),))


def waiting_for_slow() -> Group:
    """The member `slow` of generation 1 has been asked to join again, since `new` has come, at 0 ms."""
    group = Group("g")
    membership.join(group, request(), 1, "slow", at(0), RULES)
    (store,) = membership.sync(group, Sync("slow", None, 1), 2, 0)
    assert isinstance(store, fx.StoreGroup)
    rebalance.stored(group, store, ErrorCode.NONE, at(0), 0)
    membership.join(group, request(), 3, "new", at(0), RULES)
    assert group.state is GroupState.PREPARING
    return group


def test_a_new_member_is_dropped_after_five_minutes() -> None:
    group, now = waiting_for_slow(), 0
    while "new" in group.members:
        assert now < NEW_MEMBER_JOIN_MS
        now += 10_000
        membership.heartbeat(group, "slow", None, 1, now)
        effects = membership.timer_fired(group, ("session", "new"), at(now), RULES)
    assert now == NEW_MEMBER_JOIN_MS
    assert [e.joined.error for e in effects if isinstance(e, fx.AnswerJoin)] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(group.members) == ["slow"]


def test_its_timer_is_no_later_for_a_longer_session() -> None:
    group = Group("g")
    effects = membership.join(group, request(session_ms=1_800_000), 1, "a", at(0), membership.Rules())
    assert fx.StartTimer(("session", "a"), NEW_MEMBER_JOIN_MS) in effects


def test_in_a_generation_it_is_a_member_like_others() -> None:
    group = waiting_for_slow()
    membership.join(group, request("slow"), 4, "unused", at(200_000), RULES)
    assert group.state is GroupState.COMPLETING
    membership.join(group, request(), 5, "newer", at(200_000), RULES)
    membership.join(group, request("new"), 6, "unused", at(200_000), RULES)
    for now in range(210_000, 700_000, 10_000):
        effects = membership.timer_fired(group, ("session", "new"), at(now), RULES)
        assert effects == [fx.StartTimer(("session", "new"), 10_000)]


def test_a_session_that_is_longer_goes_on_in_a_generation() -> None:
    group = Group("g")
    membership.join(group, request(session_ms=1_800_000), 1, "a", at(0), RULES)
    assert group.state is GroupState.COMPLETING
    effects = membership.timer_fired(group, ("session", "a"), at(NEW_MEMBER_JOIN_MS), RULES)
    assert effects == [fx.StartTimer(("session", "a"), 1_500_000)]


def test_who_asks_again_waits_no_longer_than_from_the_first_time_on() -> None:
    group = Group("g")
    membership.join(group, request(session_ms=1_800_000), 1, "a", at(0), membership.Rules())
    effects = membership.join(group, request("a", session_ms=1_800_000), 2, "unused", at(100_000), membership.Rules())
    assert fx.StartTimer(("session", "a"), NEW_MEMBER_JOIN_MS - 100_000) in effects
