"""Requests about transactions; sent by `cluster/requests.py`."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from logyard.admin.cluster import translation
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.transactions.transactions import AbortMarker, Producer, Transaction, TransactionListing
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import NO_LEADER, TopicPartition

_PARTITIONS = 500  # of one request, as in Kafka's tool
# A leader that moves is looked for again.
_TRIES, _PAUSE_S = 20, 0.25
_MOVING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)

ProducersOrError = tuple[Producer, ...] | ApiError


class TransactionSender(Protocol):
    """The part of `requests.ClusterRequests` that is needed."""

    def ask(
        self, make: Callable[[], Any], node: int | None = None, codes: Callable[[Any], Sequence[int]] | None = None
    ) -> Any: ...

    def ask_transaction_coordinator(
        self, transactional_id: str, make: Callable[[], Any], codes: Callable[[Any], Sequence[int]]
    ) -> tuple[int, Any]: ...

    def live_brokers(self) -> list[int]: ...

    def snapshot(self, topics: Sequence[str] | None = None) -> ClusterSnapshot: ...


def list_transactions(
    sender: TransactionSender, producer_ids: Iterable[int] = (), duration_ms: int | None = None
) -> list[TransactionListing]:
    """Every broker's transactional ids, or those of some producers, or with a transaction that is open for longer.

    Raises ApiError, ClusterUnreachable.
    """
    from kafka.protocol.admin import ListTransactionsRequest

    # Only version 1 has a place for the duration.
    longer = {} if duration_ms is None else {"duration_filter": duration_ms, "min_version": 1}
    make = partial(ListTransactionsRequest, state_filters=[], producer_id_filters=list(producer_ids), **longer)
    found = []
    for broker in sender.live_brokers():
        answer = sender.ask(make, broker, lambda a: [a.error_code])
        translation.refuse(answer.error_code, None)
        found += [
            TransactionListing(one.transactional_id, broker, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
        ]
    return sorted(found, key=lambda one: (one.coordinator, one.transactional_id))


def describe_transaction(sender: TransactionSender, transactional_id: str) -> Transaction | None:
    """One transactional id; None where its coordinator does not know it. Raises ApiError, ClusterUnreachable."""
    from kafka.protocol.admin import DescribeTransactionsRequest

    coordinator, answer = sender.ask_transaction_coordinator(
        transactional_id,
        lambda: DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        lambda a: [one.error_code for one in a.transaction_states],
    )
    (one,) = answer.transaction_states
    if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    translation.refuse(one.error_code, None)
    return Transaction(
        transactional_id=transactional_id,
        coordinator=coordinator,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        state=one.transaction_state,
        timeout_ms=one.transaction_timeout_ms,
        start_ms=one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
        partitions=tuple(sorted(TopicPartition(t.topic, p) for t in one.topics for p in t.partitions)),
    )


def describe_producers(
    sender: TransactionSender, partitions: Sequence[TopicPartition], broker: int | None = None
) -> dict[TopicPartition, ProducersOrError]:
    """The producers of partitions, as their leaders know them, or as that broker's replicas do.

    A partition's error stands in place of its producers. Raises ApiError, ClusterUnreachable.
    """
    found: dict[TopicPartition, ProducersOrError] = {}
    left = list(dict.fromkeys(partitions))
    for tried in range(_TRIES):
        for node, led in _by_node(sender, left, broker, found).items():
            for start in range(0, len(led), _PARTITIONS):
                found |= _producers_of(sender, led[start : start + _PARTITIONS], node)
        left = [tp for tp in left if isinstance(why := found[tp], ApiError) and why.code in _MOVING]
        # A partition that does not exist is asked for a second time only: it may be new.
        moving = [tp for tp in left if tried < 1 or not _is_unknown(found[tp])]
        if not moving:
            break
        left = moving
        time.sleep(_PAUSE_S)
    return found


def write_abort_marker(sender: TransactionSender, marker: AbortMarker) -> None:
    """End a transaction on one partition: its leader appends the marker. Raises ApiError, ClusterUnreachable."""
    from kafka.protocol.producer import WriteTxnMarkersRequest

    wanted = WriteTxnMarkersRequest.WritableTxnMarker
    tp = marker.tp
    found: dict[TopicPartition, ProducersOrError] = {}
    for tried in range(_TRIES):
        if tried:
            time.sleep(_PAUSE_S)
        for node in _by_node(sender, [tp], None, found):
            answer = sender.ask(
                lambda: WriteTxnMarkersRequest(
                    markers=[
                        wanted(
                            producer_id=marker.producer_id,
                            producer_epoch=marker.producer_epoch,
                            transaction_result=False,
                            topics=[wanted.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                            coordinator_epoch=marker.coordinator_epoch,
                        )
                    ]
                ),
                node,
            )
            (number,) = [p.error_code for m in answer.markers for t in m.topics for p in t.partitions]
            problem = translation.problem(number, None)
            if problem is None:
                return
            found[tp] = problem
        why = found[tp]
        if not isinstance(why, ApiError) or why.code not in _MOVING:
            break
    why = found[tp]
    assert isinstance(why, ApiError)
    raise why


def _producers_of(
    sender: TransactionSender, partitions: Sequence[TopicPartition], node: int
) -> Iterator[tuple[TopicPartition, ProducersOrError]]:
    from kafka.protocol.admin import DescribeProducersRequest

    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    wanted = [
        DescribeProducersRequest.TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics.items()
    ]
    answer = sender.ask(lambda: DescribeProducersRequest(topics=wanted), node)
    for topic in answer.topics:
        for one in topic.partitions:
            problem = translation.problem(one.error_code, one.error_message)
            yield (
                TopicPartition(topic.name, one.partition_index),
                problem or tuple(map(_producer, one.active_producers)),
            )


def _producer(found: Any) -> Producer:
    start = found.current_txn_start_offset
    return Producer(
        producer_id=found.producer_id,
        epoch=found.producer_epoch,
        coordinator_epoch=found.coordinator_epoch,
        last_sequence=found.last_sequence,
        last_ms=found.last_timestamp,
        start_offset=start if start >= 0 else None,
    )


def _by_node(
    sender: TransactionSender,
    partitions: Sequence[TopicPartition],
    broker: int | None,
    found: dict[TopicPartition, ProducersOrError],
) -> Mapping[int, list[TopicPartition]]:
    """Who is asked about which partitions; those without a leader get their error in `found`."""
    if broker is not None:
        return {broker: list(partitions)} if partitions else {}
    known = sender.snapshot(sorted({tp.topic for tp in partitions})) if partitions else None
    nodes: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        view = known.partition(tp) if known is not None else None
        if view is None:
            found[tp] = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
        elif view.leader == NO_LEADER:
            found[tp] = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
        else:
            nodes.setdefault(view.leader, []).append(tp)
    return nodes


def _is_unknown(found: ProducersOrError) -> bool:
    return isinstance(found, ApiError) and found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
