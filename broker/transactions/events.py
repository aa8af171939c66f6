"""What the transaction coordinator is asked and what it answers, free of any wire version (facts §17.2 to §17.6)."""

from dataclasses import dataclass, field
from enum import Enum, auto

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer id with its epoch."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Needs(Enum):
    """What a decision has to have first."""

    PRODUCER_ID = auto()


@dataclass(frozen=True, slots=True)
class Initialize:
    """An InitProducerId request with a transactional id; `known` is the pair that the client has had."""

    transactional_id: str
    timeout_ms: int
    known: Producer | None = None


@dataclass(frozen=True, slots=True)
class Initialized:
    """The answer to it, and to an EndTxn that raises the epoch: without an error the pair to go on with."""

    error: ErrorCode
    producer: Producer = field(default_factory=Producer)


@dataclass(frozen=True, slots=True)
class Description:
    """One transactional id for DescribeTransactions and ListTransactions."""

    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = NO_TIME
    producer: Producer = field(default_factory=Producer)
    partitions: frozenset[TopicPartition] = frozenset()
