"""A problem with a znode: what is wrong, what it causes, and a fix that can be applied on request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.broker.znodes.ops import ZkOp, refused

ERROR, NOTE = "error", "note"

# Work that a controller may still do is not a finding before it is this old.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ZnodeFinding:
    """One problem. `kind` is for programs; a NOTE is not a fault. `ops`: the fix, in one transaction.

    Every write in `ops` is conditional on the version that was read, or creates a missing znode.
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
    """The findings that occur in two surveys in a row: a working cluster is always between two states."""
    seen = {(finding.path, finding.kind) for finding in before}
    return [finding for finding in now if (finding.path, finding.kind) in seen]


def mend(client: ZnodeClient, finding: ZnodeFinding) -> str | None:
    """Apply the fix of a finding; returns ZooKeeper's refusal, or None."""
    problem = refused(client.commit(finding.ops))
    return None if problem is None else problem.value
