"""What is wrong with a znode, what comes of it, and what would mend it; told, and done on demand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logyard.admin.zookeeper.znodes import ZnodeClient, refused
from logyard.broker.znodes.ops import ZkOp

ERROR, NOTE = "error", "note"

# What a working controller is about to do is no finding before it is this old.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ZnodeFinding:
    """One thing. `kind` is a word for programs; a NOTE is no fault. `ops`: the mending, in one transaction.

    Every write in `ops` is conditional on the version that was read, or creates what was not there.
    """

    path: str
    kind: str
    wrong: str
    causes: str
    fix: str
    ops: tuple[ZkOp, ...] = ()
    severity: str = ERROR

    @property
    def can_be_mended(self) -> bool:
        return bool(self.ops)

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind,
            "severity": self.severity,
            "wrong": self.wrong,
            "causes": self.causes,
            "fix": self.fix,
            "can_be_mended": self.can_be_mended,
        }

    def lines(self) -> list[str]:
        by = "--fix: " if self.can_be_mended else "by hand: "
        return [
            f"{self.severity}: {self.path} ({self.kind})",
            f"  wrong:  {self.wrong}",
            f"  causes: {self.causes}",
            f"  {by}{self.fix}",
        ]


def lasting(before: Sequence[ZnodeFinding], now: Sequence[ZnodeFinding]) -> list[ZnodeFinding]:
    """What two looks have in common: a cluster at work is between two states all the time."""
    seen = {(finding.path, finding.kind) for finding in before}
    return [finding for finding in now if (finding.path, finding.kind) in seen]


def mend(client: ZnodeClient, finding: ZnodeFinding) -> str | None:
    """Do what a finding proposes; what ZooKeeper says against it, or None."""
    problem = refused(client.commit(finding.ops))
    return None if problem is None else problem.value
