"""/controller (ephemeral: the id of the controller) and /controller_epoch (for fencing); facts §1, §4."""

from collections.abc import Iterable

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import fields

PATH = "/controller"
EPOCH_PATH = "/controller_epoch"

# The epoch znode is created with this; the first elected controller writes 1 (facts §1).
INITIAL_EPOCH = 0
# No controller has a larger epoch. A wrong one, in a request or a state, must not exhaust the numbers.
BELIEVED_MAX = 2**30


def encode(broker_id: int, timestamp_ms: int) -> bytes:
    """Write version 2, as Kafka 3.9 does outside a KRaft migration; `timestamp_ms` is wall-clock time."""
    return fields.dump(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def decode(data: bytes, path: str = PATH) -> int:
    """Return the controller's broker id, from any version. Raises CorruptData."""
    return fields.Fields.parse(path, data).integer("brokerid")


def encode_epoch(epoch: int) -> bytes:
    """Write an epoch as decimal text; this znode is not JSON."""
    return str(epoch).encode("ascii")


def decode_epoch(data: bytes) -> int:
    """Return the epoch. Raises CorruptData if the znode is not a decimal number."""
    try:
        return int(data.decode("ascii"))
    except ValueError:
        raise CorruptData(f"znode {EPOCH_PATH}: a decimal number is expected, found {data[:40]!r}") from None


def believed(epochs: Iterable[int]) -> int:
    """Return the largest of these epochs that a controller can have had; 0 if there is none."""
    return max((epoch for epoch in epochs if epoch <= BELIEVED_MAX), default=0)
