"""The group machine, driven by plain calls: who is answered what, and when."""

import time
from typing import Any

import pytest

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode, IllegalTransition
from logyard.broker.groups import effects as fx
from logyard.broker.groups import membership, rebalance
from logyard.broker.groups.events import Join, Joined, Leaver, Sync, Synced
from logyard.broker.groups.members import Group, GroupState, Member

RULES = membership.Rules()
AT_ONCE = membership.Rules(initial_delay_ms=0)
THOUSANDS = 12_000


def at(ms: int) -> Now:
    return Now(ms, 1_700_000_000_000 + ms)


def request(member_id: str = "", *, instance_id: str | None = None, protocols: str = "range", **more: bool) -> Join:
    named = tuple((name, f"meta-{name}".encode()) for name in protocols.split())
    return Join(member_id, instance_id, "client", "/127.0.0.1", 10_000, 60_000, "consumer", named, **more)


def joined(effects: fx.Effects) -> dict[int, Joined]:
    return {e.ticket: e.joined for e in effects if isinstance(e, fx.AnswerJoin)}


def synced(effects: fx.Effects) -> dict[int, Synced]:
    return {e.ticket: e.synced for e in effects if isinstance(e, fx.AnswerSync)}


def stores(effects: fx.Effects) -> fx.StoreGroup:
    (store,) = [e for e in effects if isinstance(e, fx.StoreGroup)]
    return store


def stable_pair() -> Group:
    """Members a (leader) and b in a Stable group of generation 1 with assignments A and B."""
    group = Group("g")
    membership.join(group, request(), 1, "a", at(0), RULES)
    membership.join(group, request(), 2, "b", at(0), RULES)
    membership.timer_fired(group, ("join",), at(3000), RULES)
    membership.timer_fired(group, ("join",), at(6000), RULES)
    (store,) = membership.sync(group, Sync("a", None, 1, assignments={"a": b"A", "b": b"B"}), 3, 6000)
    assert isinstance(store, fx.StoreGroup)
    membership.sync(group, Sync("b", None, 1), 4, 6000)
    answers = synced(rebalance.stored(group, store, ErrorCode.NONE, at(6000), 3000))
    assert {ticket: answer.assignment for ticket, answer in answers.items()} == {3: b"A", 4: b"B"}
    assert group.state is GroupState.STABLE
    return group


def test_first_join_is_held_open_and_prolonged_while_members_arrive() -> None:
    group = Group("g")
    effects = membership.join(group, request(), 1, "a", at(0), RULES)
    assert fx.StartTimer(("join",), 3000) in effects
    assert joined(effects) == {}
    assert joined(membership.join(group, request(), 2, "b", at(1000), RULES)) == {}
    assert membership.timer_fired(group, ("join",), at(3000), RULES) == [fx.StartTimer(("join",), 3000)]
    answers = joined(membership.timer_fired(group, ("join",), at(6000), RULES))
    assert {a.generation for a in answers.values()} == {1}
    assert [m.member_id for m in answers[1].members] == ["a", "b"]
    assert answers[2].members == ()
    assert answers[2].leader_id == "a"


def test_a_member_that_joins_again_with_a_shorter_session_is_missed_after_that() -> None:
    group = stable_pair()
    shorter = Join("b", None, "client", "/127.0.0.1", 6_000, 60_000, "consumer", (("range", b"changed"),))
    effects = membership.join(group, shorter, 5, "unused", at(7000), RULES)
    assert fx.StartTimer(("session", "b"), 6_000) in effects


def test_dynamic_member_is_sent_back_for_its_id() -> None:
    group = Group("g")
    effects = membership.join(group, request(needs_known_id=True), 1, "a", at(0), RULES)
    assert joined(effects)[1] == Joined(ErrorCode.MEMBER_ID_REQUIRED, "a")
    effects = membership.join(group, request("a", needs_known_id=True), 2, "unused", at(0), AT_ONCE)
    assert joined(effects)[2].error is ErrorCode.NONE
    assert (
        joined(membership.join(group, request("stranger"), 3, "x", at(0), RULES))[3].error
        is ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_group_that_was_empty_is_held_open_once() -> None:
    """As with Kafka: a client a second would keep all of them waiting for the rebalance time-out."""
    group = stable_pair()
    for name in "ab":
        membership.leave(group, Leaver(name), at(7000), RULES)
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)
    assert joined(membership.join(group, request(), 5, "c", at(8000), RULES)) == {}
    assert joined(membership.join(group, request(), 6, "d", at(9000), RULES)) == {}
    answers = joined(membership.timer_fired(group, ("join",), at(11_000), RULES))
    assert {ticket: answer.generation for ticket, answer in answers.items()} == {5: 3, 6: 3}


def test_an_id_that_was_given_to_a_dynamic_member_is_no_static_ones() -> None:
    """Of one instance there were two members then: Kafka cannot load such a group, nor any other of its partition."""
    group = Group("g")
    membership.join(group, request(instance_id="i"), 1, "i-1", at(0), AT_ONCE)
    membership.join(group, request(needs_known_id=True), 2, "a", at(0), AT_ONCE)
    refused = joined(membership.join(group, request("a", instance_id="i"), 3, "x", at(0), AT_ONCE))
    assert refused == {3: Joined(ErrorCode.UNKNOWN_SERVER_ERROR, "a")}
    assert (list(group.members), group.static_members) == (["i-1"], {"i": "i-1"})
    membership.join(group, request("a"), 4, "x", at(0), AT_ONCE)
    assert list(group.members) == ["i-1", "a"]


def test_heartbeat_answers_by_state() -> None:
    group = stable_pair()
    assert membership.heartbeat(group, "a", None, 1, 7000) is ErrorCode.NONE
    assert membership.heartbeat(group, "a", None, 0, 7000) is ErrorCode.ILLEGAL_GENERATION
    assert membership.heartbeat(group, "z", None, 1, 7000) is ErrorCode.UNKNOWN_MEMBER_ID
    membership.join(group, request(), 9, "c", at(7000), RULES)
    assert group.state is GroupState.PREPARING
    assert membership.heartbeat(group, "a", None, 1, 7000) is ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_and_expiry_open_a_round_and_the_last_one_empties_the_group() -> None:
    group = stable_pair()
    code, _ = membership.leave(group, Leaver("b"), at(7000), RULES)
    assert code is ErrorCode.NONE
    assert group.state is GroupState.PREPARING
    answers = joined(membership.join(group, request("a"), 9, "x", at(7000), RULES))
    assert answers[9].generation == 2
    effects = membership.timer_fired(group, ("session", "a"), at(8000), RULES)
    assert effects == [fx.StartTimer(("session", "a"), 9000)]
    membership.timer_fired(group, ("session", "a"), at(17_000), RULES)
    assert group.state is GroupState.EMPTY
    assert group.generation == 3


def test_member_that_does_not_rejoin_is_dropped_at_the_deadline() -> None:
    group = stable_pair()
    membership.join(group, request(), 9, "c", at(7000), RULES)
    membership.join(group, request("a"), 10, "x", at(7000), RULES)
    answers = joined(membership.timer_fired(group, ("join",), at(67_000), RULES))
    assert set(answers) == {9, 10}
    assert list(group.members) == ["a", "c"]


def test_member_without_sync_is_dropped_and_the_round_starts_again() -> None:
    group = stable_pair()
    membership.leave(group, Leaver("b"), at(7000), RULES)
    membership.join(group, request("a"), 9, "x", at(7000), RULES)
    assert group.state is GroupState.COMPLETING
    membership.timer_fired(group, ("sync",), at(70_000), RULES)
    assert group.state is GroupState.EMPTY


def test_static_member_comes_back_without_a_rebalance_and_its_old_id_is_fenced() -> None:
    group = Group("g")
    membership.join(group, request(instance_id="i"), 1, "i-1", at(0), AT_ONCE)
    (store,) = membership.sync(group, Sync("i-1", "i", 1, assignments={"i-1": b"A"}), 2, 0)
    assert isinstance(store, fx.StoreGroup)
    rebalance.stored(group, store, ErrorCode.NONE, at(0), 0)
    effects = membership.join(group, request(instance_id="i"), 3, "i-2", at(0), AT_ONCE)
    assert joined(effects) == {}
    answers = joined(rebalance.stored(group, stores(effects), ErrorCode.NONE, at(0), 0))
    assert answers[3].generation == 1
    assert group.state is GroupState.STABLE
    assert membership.heartbeat(group, "i-1", "i", 1, 0) is ErrorCode.FENCED_INSTANCE_ID
    assert membership.heartbeat(group, "i-2", "i", 1, 0) is ErrorCode.NONE


def static_leader_returns(**more: Any) -> tuple[Group, fx.StoreGroup]:
    """A settled group of the static leader i-1 and of b; the leader comes back as i-2, which is to be stored."""
    group = Group("g")
    membership.join(group, request(instance_id="i"), 1, "i-1", at(0), RULES)
    membership.join(group, request(), 2, "b", at(0), RULES)
    membership.timer_fired(group, ("join",), at(3000), RULES)
    membership.timer_fired(group, ("join",), at(6000), RULES)
    (store,) = membership.sync(group, Sync("i-1", "i", 1, assignments={"i-1": b"A"}), 3, 6000)
    assert isinstance(store, fx.StoreGroup)
    rebalance.stored(group, store, ErrorCode.NONE, at(6000), 3000)
    return group, stores(membership.join(group, request(instance_id="i", **more), 4, "i-2", at(7000), RULES))


def test_static_members_that_have_no_time_to_join_again_are_waited_for() -> None:
    """Their group was looked at again without a pause, until their sessions had ended."""
    group = Group("g")
    hasty = Join("", "i", "client", "/127.0.0.1", 10_000, 0, "consumer", (("range", b""),))
    membership.join(group, hasty, 1, "i-1", at(0), AT_ONCE)
    membership.join(group, request(), 2, "b", at(0), AT_ONCE)
    membership.leave(group, Leaver("b"), at(0), AT_ONCE)
    assert group.state is GroupState.PREPARING
    (effect,) = [e for e in membership.timer_fired(group, ("join",), at(1), AT_ONCE) if isinstance(e, fx.StartTimer)]
    assert effect == fx.StartTimer(("join",), 1000)


def test_static_leader_that_came_back_is_not_asked_to_assign_anew() -> None:
    group, store = static_leader_returns()
    answer = joined(rebalance.stored(group, store, ErrorCode.NONE, at(7000), 3000))[4]
    assert (answer.member_id, answer.leader_id, answer.members, answer.skip_assignment) == ("i-2", "i-1", (), False)
    group, store = static_leader_returns(can_skip_assignment=True)
    answer = joined(rebalance.stored(group, store, ErrorCode.NONE, at(7000), 3000))[4]
    assert (answer.leader_id, len(answer.members), answer.skip_assignment) == ("i-2", 2, True)


def test_static_member_whose_new_id_was_not_stored_keeps_the_old_one() -> None:
    """The next coordinator reads the old id from the log, and would fence the new one for good."""
    group, store = static_leader_returns()
    answer = joined(rebalance.stored(group, store, ErrorCode.COORDINATOR_NOT_AVAILABLE, at(7000), 3000))[4]
    assert (answer.error, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert membership.heartbeat(group, "i-1", "i", 1, 7000) is ErrorCode.NONE
    assert group.leader_id == "i-1"


def test_static_member_that_came_back_with_another_subscription_opens_no_round() -> None:
    """As in Kafka: while the group's protocol stays what it is, the assignment stands."""
    group, _ = static_leader_returns()
    other = Join("", "i", "client", "/h", 10_000, 60_000, "consumer", (("range", b"other"),))
    effects = membership.join(group, other, 5, "i-3", at(8000), RULES)
    answer = joined(rebalance.stored(group, stores(effects), ErrorCode.NONE, at(8000), 3000))[5]
    assert (answer.generation, answer.member_id, group.state) == (1, "i-3", GroupState.STABLE)
    unlike = Join("", "i", "client", "/h", 10_000, 60_000, "consumer", (("sticky", b""), ("range", b"")))
    membership.join(group, unlike, 6, "i-4", at(9000), RULES)
    assert group.state is GroupState.STABLE  # b knows range alone


def test_a_request_that_is_sent_again_takes_the_place_of_the_one_that_waits() -> None:
    group = Group("g")
    membership.join(group, request(), 1, "a", at(0), RULES)
    again = joined(membership.join(group, request("a"), 2, "x", at(0), RULES))
    assert again[1].error is ErrorCode.REBALANCE_IN_PROGRESS
    membership.join(group, request(), 3, "b", at(0), RULES)
    membership.timer_fired(group, ("join",), at(3000), RULES)
    membership.timer_fired(group, ("join",), at(6000), RULES)
    assert membership.sync(group, Sync("b", None, 1), 4, 6000) == []
    again_synced = synced(membership.sync(group, Sync("b", None, 1), 5, 6000))
    assert again_synced[4].error is ErrorCode.REBALANCE_IN_PROGRESS
    store = stores(membership.sync(group, Sync("a", None, 1, assignments={"b": b"B"}), 6, 6000))
    answers = synced(rebalance.stored(group, store, ErrorCode.NONE, at(6000), 3000))
    assert {ticket: answer.assignment for ticket, answer in answers.items()} == {5: b"B", 6: b""}


def test_failed_store_sends_everyone_round_again() -> None:
    group = Group("g")
    membership.join(group, request(), 1, "a", at(0), AT_ONCE)
    (store,) = membership.sync(group, Sync("a", None, 1, assignments={"a": b"A"}), 2, 0)
    assert isinstance(store, fx.StoreGroup)
    answers = synced(rebalance.stored(group, store, ErrorCode.NOT_COORDINATOR, at(0), 0))
    assert answers[2].error is ErrorCode.NOT_COORDINATOR
    assert group.state is GroupState.PREPARING


def test_refusals() -> None:
    group = stable_pair()
    other = membership.join(group, request(protocols="sticky"), 5, "c", at(0), RULES)
    assert joined(other)[5].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    small = membership.Rules(size_max=2)
    assert joined(membership.join(group, request(), 6, "c", at(0), small))[6].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    short = Join("", None, "c", "h", 10, 10, "consumer", (("range", b""),))
    assert joined(membership.join(group, short, 7, "c", at(0), RULES))[7].error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert membership.commit_refusal(group, "", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert membership.commit_refusal(group, "a", None, 0, 0) is ErrorCode.ILLEGAL_GENERATION
    assert membership.commit_refusal(group, "a", None, 1, 0) is ErrorCode.NONE
    assert membership.commit_refusal(Group("e"), "", None, -1, 0) is ErrorCode.NONE


def test_a_full_group_has_room_for_who_comes_in_place_of_who_has_gone() -> None:
    """Members that have gone without a word stay until the end of the rebalance."""
    group, small = stable_pair(), membership.Rules(size_max=2)
    assert joined(membership.join(group, request("a"), 5, "x", at(7000), small)) == {}
    assert group.state is GroupState.PREPARING
    assert joined(membership.join(group, request(), 6, "c", at(7100), small)) == {}
    assert joined(membership.join(group, request(), 7, "d", at(7200), small)) == {
        7: Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    }
    answers = joined(membership.join(group, request("b"), 8, "x", at(7300), small))  # it had not gone
    assert answers[8] == Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "b")
    assert (answers[5].error, answers[6].error, answers[6].generation) == (ErrorCode.NONE, ErrorCode.NONE, 2)
    assert list(group.members) == ["a", "c"]


def test_protocol_is_the_one_most_members_prefer() -> None:
    group = Group("g")
    membership.join(group, request(protocols="range sticky"), 1, "a", at(0), RULES)
    membership.join(group, request(protocols="sticky range"), 2, "b", at(0), RULES)
    membership.join(group, request(protocols="sticky range"), 3, "c", at(0), RULES)
    assert group.select_protocol() == "sticky"


def test_unlisted_move_raises() -> None:
    with pytest.raises(IllegalTransition):
        Group("g").move(GroupState.STABLE, at(0))


def test_resignation_answers_everyone_who_waits() -> None:
    group = Group("g")
    membership.join(group, request(), 1, "a", at(0), RULES)
    effects = membership.resign(group, at(0))
    assert fx.AnswerError(1, ErrorCode.NOT_COORDINATOR) in effects
    assert group.state is GroupState.DEAD


def test_the_end_of_a_round_costs_as_much_as_it_has_members(monkeypatch: pytest.MonkeyPatch) -> None:
    group, looks = Group("g"), 0
    for number in range(50):
        membership.join(group, request(), number, f"m{number}", at(0), RULES)
    whole = Member.metadata

    def counted(member: Member, protocol: str | None) -> bytes:
        nonlocal looks
        looks += 1
        return whole(member, protocol)

    monkeypatch.setattr(Member, "metadata", counted)
    membership.timer_fired(group, ("join",), at(3000), RULES)
    answers = joined(membership.timer_fired(group, ("join",), at(6000), RULES))
    assert (len(answers), len(answers[0].members)) == (50, 50)
    assert looks == 50


def test_a_member_that_joins_costs_what_it_brings_and_not_all_members() -> None:
    """Twenty members with a hundred thousand protocols each would take a second for each request to join."""
    group, asked = Group("g"), 0

    class Counted(tuple[tuple[str, bytes], ...]):
        def __iter__(self) -> Any:
            nonlocal asked
            asked += 1
            return super().__iter__()

    protocols = Counted(("range", b"") for _ in range(3))
    for number in range(200):
        wanted = Join("", None, "c", "/h", 10_000, 60_000, "consumer", protocols)
        membership.join(group, wanted, number, f"m{number}", at(0), RULES)
    assert asked < 200 * 10
    assert group.common_protocols() == ["range"] * 3


def test_a_protocol_is_common_while_all_members_have_it() -> None:
    group = Group("g")
    membership.join(group, request(protocols="range sticky"), 1, "a", at(0), RULES)
    membership.join(group, request(protocols="sticky"), 2, "b", at(0), RULES)
    assert joined(membership.join(group, request(protocols="range"), 3, "c", at(0), RULES))[3].error is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    membership.join(group, request("b", protocols="sticky range"), 4, "", at(0), RULES)
    assert group.common_protocols() == ["range", "sticky"]
    membership.join(group, request("a", protocols="sticky"), 5, "", at(0), RULES)
    assert group.common_protocols() == ["sticky"]
    membership.leave(group, Leaver("a"), at(0), RULES)
    assert group.common_protocols() == ["sticky", "range"]


@pytest.mark.parametrize("is_renamed", [False, True])
def test_thousands_of_members_that_come_back_cost_the_same_each(is_renamed: bool) -> None:
    """With a look at all members for each of them it takes some seconds."""
    group = Group("g")
    for number in range(THOUSANDS):
        membership.join(group, request(instance_id=f"i{number}"), number, f"m{number}", at(0), RULES)
    rebalance.complete_join(group, at(0))
    membership.join(group, request(), THOUSANDS, "new", at(0), RULES)
    answers: dict[int, Joined] = {}
    began = time.thread_time()
    for number in range(THOUSANDS):
        assert not answers
        back = request("" if is_renamed else f"m{number}", instance_id=f"i{number}")
        answers = joined(membership.join(group, back, number, f"n{number}", at(0), RULES))
    assert time.thread_time() - began < 1
    assert set(answers) == set(range(THOUSANDS + 1))
    stem = "n" if is_renamed else "m"
    assert list(group.members) == [*(f"{stem}{number}" for number in range(THOUSANDS)), "new"]
    assert group.joining == 0


def test_who_waits_to_join_is_counted_whatever_becomes_of_them() -> None:
    group = stable_pair()
    membership.join(group, request(instance_id="i"), 9, "c", at(7000), RULES)
    membership.join(group, request("a"), 10, "", at(7000), RULES)
    membership.join(group, request("a"), 11, "", at(7000), RULES)
    assert group.joining == 2
    membership.join(group, request(instance_id="i"), 12, "d", at(7000), RULES)
    assert group.joining == 2
    membership.leave(group, Leaver("a"), at(7000), RULES)
    assert group.joining == 1
    membership.resign(group, at(7000))
    assert group.joining == 0
