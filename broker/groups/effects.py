"""The effects that membership.py and rebalance.py return; the runner carries them out.

Those that a group may have for each member are tuples: a frozen dataclass takes four times as long to make.
"""

from dataclasses import dataclass
from typing import NamedTuple

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.events import Joined, Synced, Ticket

# The timers of a group: ("session", member id), ("pending", member id), ("join",), ("sync",).
TimerName = tuple[str, ...]


class AnswerJoin(NamedTuple):
    ticket: Ticket
    joined: Joined


class AnswerSync(NamedTuple):
    ticket: Ticket
    synced: Synced


class AnswerError(NamedTuple):
    """Answer a waiting request of any kind with an error."""

    ticket: Ticket
    code: ErrorCode


class StartTimer(NamedTuple):
    """Start (again) the named timer of this group; when it fires, `membership.timer_fired` is called."""

    name: TimerName
    delay_ms: int


class CancelTimer(NamedTuple):
    name: TimerName


@dataclass(frozen=True, slots=True)
class StaticReturn:
    """A static member that has joined a stable group again: its JoinGroup waits until its new id is stored.

    The rest is what the member was before, should the id not be stored.
    """

    ticket: Ticket
    old_id: str
    new_id: str
    leader_before: str | None
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    can_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Write the group's record with these assignments, then call `rebalance.stored`."""

    generation: int
    assignments: tuple[tuple[str, bytes], ...]
    back: StaticReturn | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    text: str


Effect = AnswerJoin | AnswerSync | AnswerError | StartTimer | CancelTimer | StoreGroup | Note
Effects = list[Effect]
