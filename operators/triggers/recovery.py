"""Between two rounds of a recovery: wait until the cluster looks healthy, or different, or the time is up."""

from collections.abc import Sequence
from typing import Any

from logyard.admin.cluster.observation import Observation
from logyard.operators.triggers.base import ClusterTrigger


class RecoveryRoundTrigger(ClusterTrigger):
    """The next round should begin: the cluster looks different or healthy, or a repair is due (the deadline).

    :param expected: brokers that should run; empty: those that are registered.
    :param controller: the broker in /controller at the last round; None: none.
    :param brokers: the brokers registered at the last round.
    """

    def __init__(
        self, *, expected: Sequence[int], controller: int | None, brokers: Sequence[int], **waiting: Any
    ) -> None:
        super().__init__(**waiting)
        self.expected = expected
        self.controller = controller
        self.brokers = brokers

    def look(self, seen: Observation) -> dict[str, Any] | None:
        snapshot = seen.snapshot
        controller = snapshot.controller if snapshot.controller in snapshot.brokers else None
        changed = controller != self.controller or set(snapshot.brokers) != set(self.brokers)
        return {"controller": snapshot.controller, "changed": changed} if changed or self._looks_healthy(seen) else None

    def missing(self, seen: Observation) -> str:
        return "a healthy cluster, or the next repair to be due"

    def _looks_healthy(self, seen: Observation) -> bool:
        snapshot = seen.snapshot
        return (
            snapshot.controller in snapshot.brokers
            and snapshot.reassignments is not None  # the controller answers
            and set(self.expected) <= set(snapshot.brokers)
            and not snapshot.unled()
            and not snapshot.under_replicated()
        )
