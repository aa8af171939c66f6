"""/controller (ephemeral: who leads) and /controller_epoch (the fencing counter)."""

from collections.abc import Iterable

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import fields

PATH = "/controller"
EPOCH_PATH = "/controller_epoch"

# What the epoch znode is created with; the first elected controller writes 1 (facts §1).
INITIAL_EPOCH = 0
# A larger one is no controller's: one mistaken request, or state, must not use the numbers up.
BELIEVED_MAX = 2**30


def encode(broker_id: int, timestamp_ms: int) -> bytes:
    """Write version 2, as Kafka 3.9 does outside a KRaft migration; `timestamp_ms` is wall-clock time."""
    return fields.dump(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def decode(data: bytes, path: str = PATH) -> int:
    """Return the broker id, the only thing that any version is read for. Raises CorruptData."""
    return fields.Fields.parse(path, data).integer("brokerid")


def encode_epoch(epoch: int) -> bytes:
    """Plain decimal text, not JSON."""
    return str(epoch).encode("ascii")


def decode_epoch(data: bytes) -> int:
    """Raises CorruptData unless the znode holds a decimal number."""
    try:
        return int(data.decode("ascii"))
    except ValueError:
        raise CorruptData(f"znode {EPOCH_PATH}: a decimal number is expected, found {data[:40]!r}") from None


def believed(epochs: Iterable[int]) -> int:
    """The largest of these epochs that a controller can have had; 0 for none."""
    return max((epoch for epoch in epochs if epoch <= BELIEVED_MAX), default=0)
