"""Between two rounds of a recovery: wait until the cluster looks whole, or other than before, or time is up."""

from collections.abc import Sequence
from typing import Any

from logyard.admin.cluster.observation import Look
from logyard.operators.triggers.base import ClusterTrigger


class RecoveryRoundTrigger(ClusterTrigger):
    """The next round is worth a worker: its deadline (a treatment that becomes due) ends it as well as a change.

    :param expected: brokers that ought to run; whoever runs where empty.
    :param controller: who held /controller at the last round; None: nobody.
    :param brokers: who was registered then.
    """

    def __init__(
        self, *, expected: Sequence[int], controller: int | None, brokers: Sequence[int], **waiting: Any
    ) -> None:
        super().__init__(**waiting)
        self.expected = expected
        self.controller = controller
        self.brokers = brokers

    def look(self, seen: Look) -> dict[str, Any] | None:
        snapshot = seen.snapshot
        controller = snapshot.controller if snapshot.controller in snapshot.brokers else None
        changed = controller != self.controller or set(snapshot.brokers) != set(self.brokers)
        return {"controller": snapshot.controller, "changed": changed} if changed or self._looks_whole(seen) else None

    def missing(self, seen: Look) -> str:
        return "the cluster to be whole, or the next treatment to be due"

    def _looks_whole(self, seen: Look) -> bool:
        snapshot = seen.snapshot
        return (
            snapshot.controller in snapshot.brokers
            and snapshot.reassignments is not None  # the controller answers
            and set(self.expected) <= set(snapshot.brokers)
            and not snapshot.unled()
            and not snapshot.under_replicated()
        )
