"""Partitions that a transaction writes to: added by its client, asked about by their leaders (facts §17.3)."""

from collections.abc import Collection

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.states import DECIDED, State
from logyard.broker.transactions.transaction import Change, Stored, Transaction


def add(
    transaction: Transaction,
    producer: Producer,
    partitions: Collection[TopicPartition],
    now: Now,
    *,
    client_version: int = 0,
) -> Change | ErrorCode:
    """Return the change to append; NONE where all are in the open transaction already.

    INVALID_PRODUCER_ID_MAPPING for another producer id, PRODUCER_FENCED for another epoch, CONCURRENT_TRANSACTIONS
    while something is under way.
    """
    refusal = refuse(transaction, producer)
    if refusal is not None:
        return refusal
    stored = transaction.stored
    if transaction.pending is not None or stored.state in DECIDED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_open = stored.state is State.ONGOING
    if is_open and stored.partitions.issuperset(partitions):
        return ErrorCode.NONE
    to = Stored(
        stored.producer_id,
        stored.epoch,
        stored.timeout_ms,
        State.ONGOING,
        stored.partitions.union(partitions),
        now.wall_ms,
        stored.start_ms if is_open else now.wall_ms,
        stored.previous_id,
        client_version=client_version,
    )
    return transaction.begin(to, deadline_ms=transaction.deadline_ms if is_open else now.ms + stored.timeout_ms)


def verify(
    transaction: Transaction, producer: Producer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition NONE if it is in the transaction, else TRANSACTION_ABORTABLE; or `add`'s error for all.

    What is pending does not matter: the leader looks once more when it appends (KAFKA-14904).
    """
    refusal = refuse(transaction, producer)
    if refusal is None and transaction.state in DECIDED:
        refusal = ErrorCode.CONCURRENT_TRANSACTIONS
    if refusal is not None:
        return dict.fromkeys(partitions, refusal)
    held = transaction.stored.partitions
    return {tp: ErrorCode.NONE if tp in held else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}


def refuse(transaction: Transaction, producer: Producer) -> ErrorCode | None:
    """Return why this is not the producer of the id, None where it is.

    CONCURRENT_TRANSACTIONS for a pair that is only pending: the answer to an EndTxn v5 told it already.
    """
    if transaction.will_have(producer):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if producer.producer_id != transaction.stored.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if producer.epoch == transaction.stored.epoch else ErrorCode.PRODUCER_FENCED
