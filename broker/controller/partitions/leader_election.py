"""Who leads a partition: the four election rules of facts §5 as functions of replicas, ISR and who is alive.

Rule 1: no state is read or changed here; an election is a value, or None when nobody may lead.
Rule 2: a leader comes out of the ISR; only an unclean Offline election may take another replica,
        and then the new leader alone is the ISR.
Rule 3: the order of the assignment decides, never the order of the ISR or of a set.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from logyard.broker.model import Assignment


class Strategy(Enum):
    """Why a leader is looked for."""

    OFFLINE = "offline"
    """The leader is gone; unclean only if the topic or the broker's default allows it."""
    UNCLEAN = "unclean"
    """The same, with leave to lose records given by an operator."""
    REASSIGN = "reassign"
    """The leader is not one of the replicas that a reassignment ends with."""
    PREFERRED = "preferred"
    """Leadership goes back to the first replica."""
    SHUTDOWN = "controlled shutdown"
    """The leader's broker has asked to leave."""


@dataclass(frozen=True, slots=True)
class Election:
    """A new leader, its ISR, and whether records may have been lost on the way."""

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
    """Apply one rule.

    `online` are the brokers that live, have the partition on a good disk and are not shutting down;
    `shutting_down` those that still live but have asked to leave.
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
    """Return the replicas that hear of the result by LeaderAndIsr; for SHUTDOWN `online` counts those leaving."""
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
