"""/latest_producer_id_block: the last allocated block of producer ids; written with a conditional set (facts §17).

Rule: no id is allocated twice, even if somebody deleted the znode, and a starting broker created it again, empty. In a
new cluster the znode is created before the first controller is elected. So if it is missing, or empty and younger than
/controller_epoch, it was deleted; then the next block begins at the seconds since 1970 times 1000, which counting
cannot have reached.
"""

from dataclasses import dataclass

from logyard.broker.znodes import fields
from logyard.broker.znodes.ops import Znode
from logyard.broker.znodes.paths import PRODUCER_IDS

PATH = PRODUCER_IDS
BLOCK_SIZE = 1000
LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The ids `start` to `end`, both included, that `broker` may give out."""

    broker: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start + 1

    def following(self, broker: int) -> "ProducerIdBlock | None":
        """Return the next block, for `broker`; None if all ids of 63 bits are used up."""
        if self.end > LAST_ID - BLOCK_SIZE:
            return None
        return ProducerIdBlock(broker, self.end + 1, self.end + BLOCK_SIZE)


def first_block(broker: int) -> ProducerIdBlock:
    """Return the first block of a new cluster, for `broker`."""
    return ProducerIdBlock(broker, 0, BLOCK_SIZE - 1)


def next_block(found: Znode | None, epoch: Znode | None, broker: int, now_ms: int) -> ProducerIdBlock | None:
    """Return the block after the one in the znode `found`, for `broker`; None if all ids of 63 bits are used up.

    `epoch` is the znode /controller_epoch, `now_ms` wall-clock time. Raises CorruptData.
    """
    last = None if found is None else decode(found.data)
    if last is not None:
        return last.following(broker)
    if found is not None and (epoch is None or found.czxid < epoch.czxid):
        return first_block(broker)
    start = max(now_ms // 1000, 1) * BLOCK_SIZE
    return ProducerIdBlock(broker, start, start + BLOCK_SIZE - 1)


def encode(block: ProducerIdBlock) -> bytes:
    return fields.dump(
        {"version": 1, "broker": block.broker, "block_start": str(block.start), "block_end": str(block.end)}
    )


def decode(data: bytes, path: str = PATH) -> ProducerIdBlock | None:
    """Read the last block; None for the empty znode that brokers create. Raises CorruptData."""
    if not data:
        return None
    content = fields.Fields.parse(path, data)
    return ProducerIdBlock(
        broker=content.integer("broker"),
        start=content.integer_text("block_start"),
        end=content.integer_text("block_end"),
    )
