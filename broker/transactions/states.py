"""The states of a transactional id, and from which other each may be reached (facts §17)."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class State(IntEnum):
    """The number is what a record holds."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The state's name in answers: `PrepareCommit`."""
        return self.name.title().replace("_", "")


STATES: Final = MappingProxyType({state.label: state for state in State})
"""The states by their names in requests and answers."""

ENDED: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open, and none waits for its markers."""

DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is in the log, and markers are under way."""

PREVIOUS: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.EMPTY: ENDED,
        State.ONGOING: ENDED | {State.ONGOING},
        State.PREPARE_COMMIT: frozenset({State.ONGOING}),
        State.PREPARE_ABORT: ENDED | {State.ONGOING, State.PREPARE_EPOCH_FENCE},
        State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
        State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
        State.DEAD: ENDED,
        State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
    }
)
"""From which states a state may be reached. PrepareAbort from where nothing is open: with `transaction.version` 2."""


def prepared(*, commits: bool) -> State:
    """The state in which the outcome is decided."""
    return State.PREPARE_COMMIT if commits else State.PREPARE_ABORT


def completed(*, commits: bool) -> State:
    """The state in which every partition has the outcome's marker."""
    return State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT
