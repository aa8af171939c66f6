"""Generates docs/state-machines.md from the tables that the controller uses."""

import inspect
from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import ModuleType
from typing import TypeVar

from logyard.broker.controller import dispatch
from logyard.broker.controller.context import PartitionPhase, ReplicaPhase
from logyard.broker.controller.partitions import leader_election, partition_machine, replica_machine
from logyard.broker.controller.partitions.leader_election import Election, Strategy
from logyard.broker.model import Assignment

Phase = TypeVar("Phase", bound=IntEnum)

HEAD = """\
# The controller's state machines

This page is generated from the code; `test_state_machine_pages.py` fails if they differ. After a change of the code
`LOGYARD_REWRITE=1 pytest tests/unit/controller/partitions/test_state_machine_pages.py` writes it again.

A transition without an arrow is refused, with a warning in the log; the other transitions of its batch are carried out.
"""

CASES: tuple[tuple[Strategy, Assignment, tuple[int, ...], frozenset[int], frozenset[int], bool], ...] = (
    (Strategy.OFFLINE, Assignment((2, 4)), (2, 4), frozenset({4}), frozenset(), False),
    (Strategy.OFFLINE, Assignment((2, 4)), (2,), frozenset({4}), frozenset(), False),
    (Strategy.OFFLINE, Assignment((2, 4)), (2,), frozenset({4}), frozenset(), True),
    (Strategy.UNCLEAN, Assignment((2, 4)), (2,), frozenset({4}), frozenset(), False),
    (Strategy.REASSIGN, Assignment((4, 2), adding=(4,), removing=(2,)), (2, 4), frozenset({2, 4}), frozenset(), False),
    (Strategy.REASSIGN, Assignment((2, 4)), (), frozenset({2}), frozenset(), False),
    (Strategy.PREFERRED, Assignment((2, 4)), (2, 4), frozenset({2, 4}), frozenset(), False),
    (Strategy.PREFERRED, Assignment((2, 4)), (4,), frozenset({2, 4}), frozenset(), False),
    (Strategy.SHUTDOWN, Assignment((2, 4)), (2, 4), frozenset({2, 4}), frozenset({2}), False),
    (Strategy.SHUTDOWN, Assignment((2, 4)), (2,), frozenset({2, 4}), frozenset({2}), False),
    (Strategy.SHUTDOWN, Assignment((2, 4)), (2, 4), frozenset({2, 4}), frozenset({2, 4}), False),
)


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        [
            HEAD,
            *_machine("Partitions", partition_machine, PartitionPhase, partition_machine.PREVIOUS),
            *_machine("Replicas", replica_machine, ReplicaPhase, replica_machine.PREVIOUS),
            *_elections(),
            *_events(),
        ]
    )


def _machine(
    title: str, module: ModuleType, phases: Iterable[Phase], previous: Mapping[Phase, frozenset[Phase]]
) -> list[str]:
    ordered = list(phases)
    arrows = [f"    {a.name} --> {b.name}" for b in ordered for a in ordered if a in previous[b]]
    head = f"| from \\ to | {' | '.join(p.name for p in ordered)} |"
    rule = "|---" * (len(ordered) + 1) + "|"
    rows = [
        f"| {a.name} ({a.value}) | {' | '.join('✓' if a in previous[b] else '' for b in ordered)} |" for a in ordered
    ]
    return [
        f"## {title}",
        f"`{_path(module)}`",
        "",
        *_rules(module),
        "",
        "```mermaid",
        "stateDiagram-v2",
        *arrows,
        "```",
        "",
        head,
        rule,
        *rows,
        "",
    ]


def _elections() -> list[str]:
    rows = []
    for strategy, assignment, isr, live, leaving, allowed in CASES:
        found = leader_election.elect(strategy, assignment, isr, live, shutting_down=leaving, unclean_allowed=allowed)
        name = strategy.value + (", unclean allowed" if allowed else "")
        target = f" → {_ids(assignment.target)}" if assignment.is_reassigning else ""
        away = f", leaving {_ids(sorted(leaving))}" if leaving else ""
        online = _ids(sorted(live)) + away
        rows.append(
            f"| {name} | {_ids(assignment.replicas)}{target} | {_ids(isr)} | {online} | {_outcome(found)} |",
        )
    return [
        "## Elections",
        f"`{_path(leader_election)}`",
        "",
        *_rules(leader_election),
        "",
        "| election | replicas | ISR | online | leader; new ISR |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _outcome(election: Election | None) -> str:
    if election is None:
        return "none"
    return f"{election.leader}; {_ids(election.isr)}" + (" (records may be lost)" if election.unclean else "")


def _events() -> list[str]:
    kinds = [*dispatch.ALWAYS, *dispatch.HANDLERS]
    rows = [f"| {kind.__name__} | {_first_line(kind)} | {dispatch.STATES.get(kind, 0)} |" for kind in kinds]
    return [
        "## Events",
        f"`{_path(dispatch)}`; the number is Kafka's ControllerState while the event is handled. "
        f"All brokers handle the first {len(dispatch.ALWAYS)}, only the controller handles the others.",
        "",
        "| event | | state |",
        "|---|---|---|",
        *rows,
        "",
    ]


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _rules(module: ModuleType) -> list[str]:
    """The rules at the head of a module as a list, one line each; a rule ends at the next one or at an empty line."""
    found: list[str] = []
    is_rule = False
    for line in (inspect.getdoc(module) or "").splitlines():
        if line.startswith("Rule "):
            rule = line.partition(": ")[2]
            found.append(f"- {rule[0].upper()}{rule[1:]}")
            is_rule = True
        elif is_rule and line.strip():
            found[-1] += " " + line.strip()
        else:
            is_rule = False
    return found


def _path(module: ModuleType) -> str:
    return module.__name__.removeprefix("logyard.").replace(".", "/") + ".py"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "–"
