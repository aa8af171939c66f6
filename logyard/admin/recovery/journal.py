"""/logyard/recovery: the steps that recoveries took, one znode each, written with a fencing or before a stop.

They are kept in the cluster's ZooKeeper, since it is the cluster that must not be hurt twice: by two runs, by two
Airflows, or by a run that begins anew. Their times are ZooKeeper's, which all of them share. Kafka has no such znode.
"""

import json

from logyard.admin.recovery.witnesses import FENCE, STOP, Step
from logyard.broker.znodes.ops import Znode

PATH = "/logyard/recovery"
SEQUENCE_PREFIX = f"{PATH}/step-"
KEPT_MS = 2 * 3_600_000


def encode(kind: str, broker: int) -> bytes:
    return json.dumps({"version": 1, "step": kind, "broker": broker}).encode()


def decode(znode: Znode) -> Step | None:
    """Read a step; None for one that cannot be read, or that somebody newer wrote."""
    try:
        content = json.loads(znode.data)
        kind, broker = content["step"], int(content["broker"])
    except (KeyError, TypeError, ValueError):
        return None
    return Step(kind, broker, znode.mtime_ms, znode.czxid) if kind in (FENCE, STOP) else None
