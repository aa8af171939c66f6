"""Who leads a partition: the four election rules of facts §5 as functions of replicas, ISR and live brokers.

Rule 1: no state is read or changed here; an election is a value, or None if no replica may lead.
Rule 2: a leader comes from the ISR; only an unclean Offline election may take another replica, and then the ISR is the
new leader alone.
Rule 3: the order of the assignment decides, never the order of the ISR or of a set.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from logyard.broker.model import Assignment


class Strategy(Enum):
    """Why a leader is elected."""

    OFFLINE = "offline"
    """The leader is offline; unclean only if the topic or the broker's default allows it."""
    UNCLEAN = "unclean"
    """The same, but an operator accepts the loss of records."""
    REASSIGN = "reassign"
    """The leader is not one of the reassignment's target replicas."""
    PREFERRED = "preferred"
    """Leadership goes back to the first replica."""
    SHUTDOWN = "controlled shutdown"
    """The leader's broker is shutting down."""


@dataclass(frozen=True, slots=True)
class Election:
    """A new leader, its ISR, and whether the election was unclean, so that records may be lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect(
    strategy: Strategy,
    assignment: Assignment,
    isr: Sequence[int],
    online: Collection[int],
    *,
    shutting_down: Collection[int] = (),
    unclean_allowed: bool = False,
) -> Election | None:
    """Apply one rule; None if no replica may lead.

    `online` are the brokers that are alive, have the partition on a working disk and are not shutting down;
    `shutting_down` those that are alive but about to exit.
    """
    match strategy:
        case Strategy.OFFLINE | Strategy.UNCLEAN:
            may_lose = unclean_allowed or strategy is Strategy.UNCLEAN
            return _offline(assignment.replicas, isr, online, may_lose)
        case Strategy.REASSIGN:
            return _first(assignment.target, isr, online)
        case Strategy.PREFERRED:
            return _first(assignment.replicas[:1], isr, online)
        case Strategy.SHUTDOWN:
            remaining = tuple(r for r in isr if r not in shutting_down)
            return _first(assignment.replicas, remaining, online)


def recipients(strategy: Strategy, assignment: Assignment, online: Collection[int]) -> tuple[int, ...]:
    """Return the replicas that get the result by LeaderAndIsr; for SHUTDOWN `online` includes those shutting down."""
    match strategy:
        case Strategy.REASSIGN:
            return assignment.target
        case Strategy.PREFERRED:
            return assignment.replicas
        case _:
            return tuple(r for r in assignment.replicas if r in online)


def _offline(replicas: Sequence[int], isr: Sequence[int], online: Collection[int], may_lose: bool) -> Election | None:
    leader = next((r for r in replicas if r in online and r in isr), None)
    if leader is not None:
        return Election(leader, tuple(r for r in isr if r in online))
    if not may_lose:
        return None
    leader = next((r for r in replicas if r in online), None)
    return None if leader is None else Election(leader, (leader,), unclean=True)


def _first(candidates: Sequence[int], isr: Sequence[int], online: Collection[int]) -> Election | None:
    leader = next((r for r in candidates if r in online and r in isr), None)
    return None if leader is None else Election(leader, tuple(isr))
