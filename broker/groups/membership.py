"""Consumer groups: joining, syncing, heartbeats, leaving, expiring (facts §16).

Rule 1: each function takes the group and one event, changes the group in place, and returns effects.
Rule 2: no I/O, clock or randomness: the time and new ids are arguments.
Rule 3: a waiting request is answered exactly once; the code that answers it clears its ticket. If a member sends its
        request again, the waiting one is answered with REBALANCE_IN_PROGRESS, and the new one waits.
"""

from dataclasses import dataclass

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import effects as fx
from logyard.broker.groups import rebalance
from logyard.broker.groups.events import Committer, Join, Joined, Leaver, Sync, Synced, Ticket
from logyard.broker.groups.members import Group, GroupState, Member
from logyard.broker.groups.rebalance import JOIN_TIMER, SYNC_TIMER, session_timer, touch

# How long the first join of a member may wait for others, as in Kafka: its client may be gone, and there may be very
# many of them until a slow member has joined, which has a time-out of its own.
NEW_MEMBER_JOIN_MS = 300_000


@dataclass(frozen=True, slots=True)
class Rules:
    """The broker's group.* settings."""

    initial_delay_ms: int = 3000
    size_max: int = 2_147_483_647
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000


def join(group: Group, request: Join, ticket: Ticket, new_member_id: str, now: Now, rules: Rules) -> fx.Effects:
    """A member joins. It gets `new_member_id` if the request has no id.

    Errors: COORDINATOR_NOT_AVAILABLE, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED,
    MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    error = _join_refusal(group, request, rules)
    if error is not ErrorCode.NONE:
        answer = fx.AnswerJoin(ticket, Joined(error, request.member_id))
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED and request.member_id in group.members:
            return [*_remove(group, request.member_id, now, rules, "finds the group full"), answer]
        return [answer]
    if not request.member_id:
        return _join_new(group, request, ticket, new_member_id, now, rules)
    if request.member_id in group.pending:
        if request.instance_id is not None:
            # As in Kafka. There could be two members of one instance: Kafka would load none of the partition's groups.
            return [fx.AnswerJoin(ticket, Joined(ErrorCode.UNKNOWN_SERVER_ERROR, request.member_id))]
        del group.pending[request.member_id]
        return [
            fx.CancelTimer(("pending", request.member_id)),
            *_admit(group, request, ticket, request.member_id, now, rules),
        ]
    return _join_known(group, request, ticket, now, rules)


def _join_refusal(group: Group, request: Join, rules: Rules) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not rules.session_timeout_ms_min <= request.session_timeout_ms <= rules.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not request.protocols or not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE if _has_room(group, request, rules) else ErrorCode.GROUP_MAX_SIZE_REACHED


def _has_room(group: Group, request: Join, rules: Rules) -> bool:
    """While a rebalance is open those count who have joined: others may be gone, and have to give way to who is there.

    As in Kafka; but a static member that comes back always has its place.
    """
    if len(group.members) < rules.size_max or request.instance_id in group.static_members:
        return True
    member = group.members.get(request.member_id)
    if group.state is not GroupState.PREPARING:
        return member is not None
    if member is not None and member.join_ticket is not None:
        return True
    return group.joining < rules.size_max


def _join_new(group: Group, request: Join, ticket: Ticket, new_member_id: str, now: Now, rules: Rules) -> fx.Effects:
    if request.instance_id is not None and request.instance_id in group.static_members:
        return _replace_static(group, request, ticket, new_member_id, now, rules)
    if request.instance_id is None and request.needs_known_id:
        group.pending[new_member_id] = request.session_timeout_ms
        return [
            fx.StartTimer(("pending", new_member_id), request.session_timeout_ms),
            fx.AnswerJoin(ticket, Joined(ErrorCode.MEMBER_ID_REQUIRED, new_member_id)),
        ]
    return _admit(group, request, ticket, new_member_id, now, rules)


def _admit(group: Group, request: Join, ticket: Ticket, member_id: str, now: Now, rules: Rules) -> fx.Effects:
    """Add a new member, and begin a rebalance if none is running."""
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocol_type,
        request.protocols,
        join_ticket=ticket,
        new_until_ms=now.ms + NEW_MEMBER_JOIN_MS,
    )
    group.add(member)
    group.joined_meanwhile = group.generation == 0
    return [_begin_session(member, now), *_reopen(group, now, rules)]


def _begin_session(member: Member, now: Now) -> fx.StartTimer:
    """A member has joined, perhaps with another session time-out; the first join of one may wait for so long only."""
    touch(member, now.ms)
    left_ms = member.new_until_ms - now.ms if member.new_until_ms else member.session_timeout_ms
    return fx.StartTimer(session_timer(member.member_id), min(member.session_timeout_ms, max(left_ms, 0)))


def _reopen(group: Group, now: Now, rules: Rules) -> fx.Effects:
    if group.state is GroupState.PREPARING:
        return rebalance.maybe_complete(group, now)
    return rebalance.prepare(group, now, rules.initial_delay_ms)


def _replace_static(
    group: Group, request: Join, ticket: Ticket, new_member_id: str, now: Now, rules: Rules
) -> fx.Effects:
    """A static member has joined again with its instance id: its old id is fenced, its assignment stays (KIP-345)."""
    assert request.instance_id is not None
    old_id = group.static_members[request.instance_id]
    member = group.members[old_id]
    effects: fx.Effects = [fx.CancelTimer(session_timer(old_id))]
    if member.join_ticket is not None:
        effects.append(fx.AnswerJoin(member.join_ticket, Joined(ErrorCode.FENCED_INSTANCE_ID, old_id)))
    if member.sync_ticket is not None:
        effects.append(fx.AnswerSync(member.sync_ticket, Synced(ErrorCode.FENCED_INSTANCE_ID)))
    before = fx.StaticReturn(
        ticket,
        old_id,
        new_member_id,
        group.leader_id,
        member.protocols,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        request.can_skip_assignment,
    )
    group.rename(old_id, new_member_id)
    group.wait(member, ticket)
    member.sync_ticket = None
    group.offer(member, request.protocols)
    member.session_timeout_ms, member.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
    effects.append(_begin_session(member, now))
    if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
        return effects + _reopen(group, now, rules)
    # The join is answered once the new id is in the log: otherwise the next coordinator would fence it.
    kept = tuple((m.member_id, m.assignment) for m in group.members.values())
    return [*effects, fx.StoreGroup(group.generation, kept, before)]


def _join_known(group: Group, request: Join, ticket: Ticket, now: Now, rules: Rules) -> fx.Effects:
    member = group.members.get(request.member_id)
    code = _identity_error(group, request.member_id, request.instance_id)
    if code is not ErrorCode.NONE or member is None:
        return [fx.AnswerJoin(ticket, Joined(code, request.member_id))]
    unchanged = member.protocols == request.protocols
    if group.state is GroupState.COMPLETING and unchanged:
        return [fx.AnswerJoin(ticket, group.joined(member))]
    if group.state is GroupState.STABLE and unchanged and member.member_id != group.leader_id:
        touch(member, now.ms)
        return [fx.AnswerJoin(ticket, group.joined(member))]
    effects: fx.Effects = []
    if member.join_ticket is not None:
        effects.append(fx.AnswerJoin(member.join_ticket, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
    group.wait(member, ticket)
    group.offer(member, request.protocols)
    member.session_timeout_ms, member.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
    effects.append(_begin_session(member, now))
    return effects + _reopen(group, now, rules)


def _identity_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return FENCED_INSTANCE_ID (a static member with an old id), UNKNOWN_MEMBER_ID or NONE."""
    if instance_id is not None and instance_id in group.static_members:
        if group.static_members[instance_id] != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    elif instance_id is not None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def sync(group: Group, request: Sync, ticket: Ticket, now_ms: int) -> fx.Effects:
    """A member asks for its assignment; the leader sends those of all members.

    Errors: COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
    """
    code = _sync_refusal(group, request)
    if code is not ErrorCode.NONE:
        return [fx.AnswerSync(ticket, Synced(code))]
    member = group.members[request.member_id]
    touch(member, now_ms)
    group.await_sync(member, awaits=False)
    if group.state is GroupState.STABLE:
        return [fx.AnswerSync(ticket, rebalance.assigned(group, member)), *rebalance.all_synced(group)]
    effects: fx.Effects = []
    if member.sync_ticket is not None:
        effects.append(fx.AnswerSync(member.sync_ticket, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
    member.sync_ticket = ticket
    if member.member_id == group.leader_id:
        given = request.assignments
        effects.append(fx.StoreGroup(group.generation, tuple((m, given.get(m, b"")) for m in group.members)))
    return effects


def _sync_refusal(group: Group, request: Sync) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = _identity_error(group, request.member_id, request.instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
    """Prolong a member's session. REBALANCE_IN_PROGRESS tells it to join again.

    Other errors: COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = _identity_error(group, member_id, instance_id)
    if code is not ErrorCode.NONE:
        return code
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    touch(group.members[member_id], now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorCode.NONE


def leave(group: Group, leaver: Leaver, now: Now, rules: Rules) -> tuple[ErrorCode, fx.Effects]:
    """A member leaves. Errors: COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
    member_id = leaver.member_id
    if leaver.instance_id is not None:
        known = group.static_members.get(leaver.instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        if member_id and member_id != known:
            return ErrorCode.FENCED_INSTANCE_ID, []
        member_id = known
    if member_id in group.pending:
        del group.pending[member_id]
        return ErrorCode.NONE, [fx.CancelTimer(("pending", member_id)), *rebalance.maybe_complete(group, now)]
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID, []
    return ErrorCode.NONE, _remove(group, member_id, now, rules, "left")


def _remove(group: Group, member_id: str, now: Now, rules: Rules, why: str) -> fx.Effects:
    member = group.remove(member_id)
    assert member is not None
    effects: fx.Effects = [fx.CancelTimer(session_timer(member_id)), fx.Note(f"{member_id} {why}")]
    if member.join_ticket is not None:
        effects.append(fx.AnswerJoin(member.join_ticket, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member_id)))
    if member.sync_ticket is not None:
        effects.append(fx.AnswerSync(member.sync_ticket, Synced(ErrorCode.UNKNOWN_MEMBER_ID)))
    if group.state in (GroupState.STABLE, GroupState.COMPLETING):
        return effects + rebalance.prepare(group, now, rules.initial_delay_ms)
    return effects + rebalance.maybe_complete(group, now)


def timer_fired(group: Group, name: fx.TimerName, now: Now, rules: Rules) -> fx.Effects:
    """One of the group's timers has fired."""
    if name == JOIN_TIMER:
        return rebalance.join_deadline(group, now, rules.initial_delay_ms)
    if name == SYNC_TIMER:
        return rebalance.sync_deadline(group, now, rules.initial_delay_ms)
    kind, member_id = name
    if kind == "pending":
        group.pending.pop(member_id, None)
        return rebalance.maybe_complete(group, now)
    member = group.members.get(member_id)
    if member is None:
        return []
    if member.new_until_ms and member.waits:
        # Its client may have gone long ago: nobody is told of a lost connection.
        left_ms = member.new_until_ms - now.ms
        if left_ms <= 0:
            return _remove(group, member_id, now, rules, "waits too long for its first generation")
        touch(member, now.ms)
        return [fx.StartTimer(name, min(member.session_timeout_ms, left_ms))]
    if member.waits:
        # A member cannot send heartbeats while its request waits: its session goes on.
        touch(member, now.ms)
    if member.deadline_ms > now.ms:
        return [fx.StartTimer(name, member.deadline_ms - now.ms)]
    return _remove(group, member_id, now, rules, "sent no heartbeat in time")


def loaded(group: Group, now: Now, rules: Rules) -> fx.Effects:
    """The group was read from the log. One that has more members by now than it may have begins a rebalance, in which
    the last to join again find it full, as in Kafka."""
    if group.state is not GroupState.STABLE or len(group.members) <= rules.size_max:
        return []
    return rebalance.prepare(group, now, rules.initial_delay_ms)


def resign(group: Group, now: Now) -> fx.Effects:
    """Another broker coordinates this group now: answer all waiting requests with NOT_COORDINATOR."""
    effects: fx.Effects = [fx.CancelTimer(JOIN_TIMER), fx.CancelTimer(SYNC_TIMER)]
    effects += [fx.CancelTimer(("pending", member_id)) for member_id in group.pending]
    for member in group.members.values():
        effects.append(fx.CancelTimer(session_timer(member.member_id)))
        for ticket in (member.join_ticket, member.sync_ticket):
            if ticket is not None:
                effects.append(fx.AnswerError(ticket, ErrorCode.NOT_COORDINATOR))
        group.wait(member, None)
        member.sync_ticket = None
    group.move(GroupState.DEAD, now)
    return effects


def commit_refusal(group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
    """Return why a commit of this member and generation may not be written (facts §16); NONE: it may.

    COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    code = _identity_error(group, member_id, instance_id)
    if code is not ErrorCode.NONE:
        return code
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    touch(group.members[member_id], now_ms)
    return ErrorCode.NONE


def transactional_commit_refusal(group: Group, committer: Committer) -> ErrorCode:
    """The same for a commit in a transaction: a rebalance does not matter, and old producers do not send members."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if committer.generation < 0 and (group.state is GroupState.EMPTY or committer.is_unnamed):
        return ErrorCode.NONE
    code = _identity_error(group, committer.member_id, committer.instance_id)
    if code is ErrorCode.NONE and committer.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return code
