"""/latest_producer_id_block: the block of producer ids handed out last; written with a conditional set.

Rule: no id is handed out twice, also where the znode was deleted under a cluster that had handed some out, and maybe
made again, empty, by a broker's start. Every broker makes it before the first controller is elected: an empty one that
is younger than /controller_epoch says as little as none at all. Then a block is taken that no counting can have
reached: that of this second since 1970.
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
        """The next block, for `broker`; None once the 63 bits are used up."""
        if self.end > LAST_ID - BLOCK_SIZE:
            return None
        return ProducerIdBlock(broker, self.end + 1, self.end + BLOCK_SIZE)


def first_block(broker: int) -> ProducerIdBlock:
    """The block of a cluster that has given out none (the znode is empty)."""
    return ProducerIdBlock(broker, 0, BLOCK_SIZE - 1)


def next_block(found: Znode | None, epoch: Znode | None, broker: int, now_ms: int) -> ProducerIdBlock | None:
    """The block after what was `found`, for `broker`; None once the 63 bits are used up.

    `epoch` is /controller_epoch as it is now, `now_ms` wall-clock time. Raises CorruptData.
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
