"""/logyard/recovery: the steps of recoveries, one znode each, written together with a fencing or before a stop.

They are in the cluster's ZooKeeper so that two runs, two Airflows, or a restarted run do not repeat a step. Their times
are ZooKeeper's, which all of them share. Kafka has no such znode.
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
    """Parse a step; None if it does not parse, or a newer version wrote it."""
    try:
        content = json.loads(znode.data)
        kind, broker = content["step"], int(content["broker"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return Step(kind, broker, znode.mtime_ms, znode.czxid) if kind in (FENCE, STOP) else None
