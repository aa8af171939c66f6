"""A rebalance: members join, the leader assigns, the assignments are stored and sent (facts §16).

Rule 1: `prepare` begins a rebalance, `complete_join` ends the joining; then the group becomes Stable, or begins again.
Rule 2: dynamic members that have not joined by the deadline are dropped; static ones stay, and are assigned what they
        may come back for until their session ends, which begins anew, or until the sync deadline.
Rule 3: assignments are sent only after they were stored.
Rule 4: who has not asked for an assignment by the sync deadline is dropped, in a stable group too: what was assigned to
        such a member nobody reads, although it may send heartbeats.
"""

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import effects as fx
from logyard.broker.groups.events import Joined, Synced
from logyard.broker.groups.members import Group, GroupState, Member

JOIN_TIMER: fx.TimerName = ("join",)
SYNC_TIMER: fx.TimerName = ("sync",)
# How long is waited for static members at least: their rebalance time-out may be 0, and their sessions half an hour.
WAIT_AGAIN_MS_MIN = 1000


def session_timer(member_id: str) -> fx.TimerName:
    return ("session", member_id)


def touch(member: Member, now_ms: int) -> None:
    """Prolong the member's session; when its timer fires, the deadline decides."""
    member.deadline_ms = now_ms + member.session_timeout_ms


def prepare(group: Group, now: Now, initial_delay_ms: int) -> fx.Effects:
    """Begin a rebalance. If the group was empty, wait `initial_delay_ms` at least, so that many members can join."""
    effects: fx.Effects = []
    if group.state is GroupState.COMPLETING:
        effects += drop_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
    effects.append(fx.CancelTimer(SYNC_TIMER))
    longest = max((m.rebalance_timeout_ms for m in group.members.values()), default=0)
    if group.state is GroupState.EMPTY and initial_delay_ms > 0:
        delay = min(initial_delay_ms, longest)
        group.initial_join, group.initial_left_ms = True, max(longest - delay, 0)
        group.joined_meanwhile = False
    else:
        delay = longest
        group.initial_join = False
    group.move(GroupState.PREPARING, now)
    effects += [fx.Note(f"rebalance opened, generation {group.generation}"), fx.StartTimer(JOIN_TIMER, delay)]
    return effects + maybe_complete(group, now)


def maybe_complete(group: Group, now: Now) -> fx.Effects:
    """End the joining if all members have joined."""
    if group.state is not GroupState.PREPARING or group.initial_join or group.pending:
        return []
    if group.joining < len(group.members):
        return []
    return complete_join(group, now)


def join_deadline(group: Group, now: Now, initial_delay_ms: int) -> fx.Effects:
    """The join timer has fired: end the joining; but prolong the first one of a group if more members have come."""
    if group.state is not GroupState.PREPARING:
        return []
    if group.initial_join and group.joined_meanwhile and group.initial_left_ms > 0:
        delay = min(initial_delay_ms, group.initial_left_ms)
        group.initial_left_ms -= delay
        group.joined_meanwhile = False
        return [fx.StartTimer(JOIN_TIMER, delay)]
    return complete_join(group, now)


def complete_join(group: Group, now: Now) -> fx.Effects:
    """End the joining: begin the next generation, choose the protocol, answer the members that have joined."""
    effects: fx.Effects = [fx.CancelTimer(JOIN_TIMER)]
    group.initial_join = False
    for member in [m for m in group.members.values() if m.join_ticket is None and m.instance_id is None]:
        group.remove(member.member_id)
        effects += [fx.CancelTimer(session_timer(member.member_id)), fx.Note(f"{member.member_id} did not rejoin")]
    present = [m for m in group.members.values() if m.join_ticket is not None]
    if group.members and not present:
        # There are only static members, and none has joined: wait for them, or for the end of their sessions.
        longest = max(m.rebalance_timeout_ms for m in group.members.values())
        return [*effects, fx.StartTimer(JOIN_TIMER, max(longest, WAIT_AGAIN_MS_MIN))]
    group.generation += 1
    if not group.members:
        group.move(GroupState.EMPTY, now)
        group.protocol = None
        return [*effects, fx.Note("empty"), fx.StoreGroup(group.generation, ())]
    leader = group.members.get(group.leader_id or "")
    if leader is None or leader.join_ticket is None:
        group.leader_id = present[0].member_id
    group.protocol = group.select_protocol()
    group.move(GroupState.COMPLETING, now)
    effects.append(fx.Note(f"generation {group.generation}, {len(group.members)} members, {group.protocol}"))
    for member in group.members.values():
        if member.join_ticket is not None:
            effects.append(fx.AnswerJoin(member.join_ticket, group.joined(member)))
            group.wait(member, None)
        group.await_sync(member, awaits=True)
        member.new_until_ms = 0
        touch(member, now.ms)
    longest = max(m.rebalance_timeout_ms for m in group.members.values())
    return [*effects, fx.StartTimer(SYNC_TIMER, longest)]


def sync_deadline(group: Group, now: Now, initial_delay_ms: int) -> fx.Effects:
    """The sync timer has fired: drop the members that have sent no SyncGroup, and begin again (facts §16)."""
    if not group.unsynced or group.state not in (GroupState.COMPLETING, GroupState.STABLE):
        return []
    effects: fx.Effects = []
    for member in [m for m in group.members.values() if m.awaits_sync]:
        group.remove(member.member_id)
        effects += [fx.CancelTimer(session_timer(member.member_id)), fx.Note(f"{member.member_id} sent no SyncGroup")]
        if member.join_ticket is not None:  # a static member that has just come back
            effects.append(fx.AnswerJoin(member.join_ticket, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)))
    return effects + prepare(group, now, initial_delay_ms)


def all_synced(group: Group) -> fx.Effects:
    """Stop the sync timer if nobody is waited for."""
    return [] if group.unsynced else [fx.CancelTimer(SYNC_TIMER)]


def drop_assignments(group: Group, code: ErrorCode) -> fx.Effects:
    """Forget the assignments, and answer all waiting SyncGroups with `code`."""
    effects: fx.Effects = []
    for member in group.members.values():
        member.assignment = b""
        if member.sync_ticket is not None:
            effects.append(fx.AnswerSync(member.sync_ticket, Synced(code)))
            member.sync_ticket = None
    return effects


def stored(group: Group, effect: fx.StoreGroup, code: ErrorCode, now: Now, initial_delay_ms: int) -> fx.Effects:
    """The append of the group's record has ended: send the assignments, or begin another rebalance if it failed."""
    if effect.back is not None:
        return _returned(group, effect.back, code, now)
    if group.state is not GroupState.COMPLETING or effect.generation != group.generation:
        return []
    if code is not ErrorCode.NONE:
        return drop_assignments(group, code) + prepare(group, now, initial_delay_ms)
    given = dict(effect.assignments)
    effects = all_synced(group)
    for member in group.members.values():
        member.assignment = given.get(member.member_id, b"")
        if member.sync_ticket is not None:
            effects.append(fx.AnswerSync(member.sync_ticket, assigned(group, member)))
            member.sync_ticket = None
            touch(member, now.ms)
    group.move(GroupState.STABLE, now)
    return [*effects, fx.Note(f"stable, generation {group.generation}")]


def _returned(group: Group, back: fx.StaticReturn, code: ErrorCode, now: Now) -> fx.Effects:
    """The append of a static member's new id has ended: answer its join, or restore its old id if it failed.

    If a rebalance has begun meanwhile, that answers the join.
    """
    member = group.members.get(back.new_id)
    if member is None or member.join_ticket != back.ticket or group.state is not GroupState.STABLE:
        return []
    group.wait(member, None)
    touch(member, now.ms)
    if code is not ErrorCode.NONE:
        group.rename(back.new_id, back.old_id)
        group.offer(member, back.protocols)
        member.session_timeout_ms, member.rebalance_timeout_ms = back.session_timeout_ms, back.rebalance_timeout_ms
        return [
            fx.CancelTimer(session_timer(back.new_id)),
            fx.StartTimer(session_timer(back.old_id), member.session_timeout_ms),
            fx.AnswerJoin(back.ticket, Joined(code, "")),
        ]
    answer = group.joined(member, skip_assignment=back.can_skip_assignment)
    if not back.can_skip_assignment:
        # A leader would assign again, which a stable group does not accept: before v9 the answer names the previous
        # leader (KIP-814).
        answer = answer._replace(leader_id=back.leader_before or "", members=())
    return [fx.AnswerJoin(back.ticket, answer)]


def assigned(group: Group, member: Member) -> Synced:
    return Synced(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol)
