"""/latest_producer_id_block: the block of producer ids handed out last; written with a conditional set."""

from dataclasses import dataclass

from logyard.broker.znodes import fields
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
