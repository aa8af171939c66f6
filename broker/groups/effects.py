"""What the group machine wants done; the runner does it."""

from dataclasses import dataclass

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.events import Joined, Synced, Ticket

# ("session", member id), ("pending", member id), ("join",), ("sync",): one timer each per group.
TimerName = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerJoin:
    ticket: Ticket
    joined: Joined


@dataclass(frozen=True, slots=True)
class AnswerSync:
    ticket: Ticket
    synced: Synced


@dataclass(frozen=True, slots=True)
class AnswerError:
    """End a wait, whatever it was for, with an error."""

    ticket: Ticket
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class StartTimer:
    """(Re)start the named timer of this group; it comes back as `groups.timer_fired`."""

    name: TimerName
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    name: TimerName


@dataclass(frozen=True, slots=True)
class StaticReturn:
    """A static member that came back to a settled group, waits until its new id is stored, and what it was before."""

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
    """Write the group's record, with these assignments, and report back by `rebalance.stored`."""

    generation: int
    assignments: tuple[tuple[str, bytes], ...]
    back: StaticReturn | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    text: str


Effect = AnswerJoin | AnswerSync | AnswerError | StartTimer | CancelTimer | StoreGroup | Note
Effects = list[Effect]
