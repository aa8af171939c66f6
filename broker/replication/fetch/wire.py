"""Fetch as the codec's messages and as replication's values, on both sides: serving and following."""

from collections.abc import Callable, Iterable, Sequence

from logyard.broker.errors import ErrorCode
from logyard.broker.log.file_part import FilePart
from logyard.broker.model import ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.protocol import fetch, fetch_client
from logyard.broker.protocol.fetch_client import FetchResponse
from logyard.broker.protocol.produce import NodeEndpoint
from logyard.broker.replication.events import (
    FetchedPartition,
    FetchParams,
    FollowerFetch,
    FollowerFetchAnswer,
    Isolation,
    PartitionFetch,
    Records,
)
from logyard.broker.replication.fetch import plain, plain_following
from logyard.broker.replication.fetch.session_keys import SessionKey, forgotten_key

FETCH_BY_ID = 17
FETCH_BY_NAME = 12
TOPIC_IDS_SINCE = 13
RACK_SINCE = 11
# By the protocol's isolation level; every value above 0 is read_committed.
_ISOLATIONS = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)


# -- Serving


def asked(
    version: int,
    body: memoryview,
    listener: str,
    topic_name: Callable[[TopicId], str | None],
    parts_max: int | None = None,
) -> plain.Asked:
    """Decode the body of a Fetch request. An unknown topic id gives the empty topic name.

    Raises CorruptData, with `parts_max` also for more topics and partitions than that.
    """
    if parts_max is None:
        found = plain.asked(version, body, listener, topic_name) if version >= plain.FIRST else None
        if found is not None:
            return found
        parts_max = fetch.PARTS_MAX
    request = fetch.parse_request(version, body, parts_max)
    asks, forgotten = fetch_asks(request, version, topic_name)
    return fetch_params(request, version, listener), request.session_id, request.session_epoch, asks, forgotten


def answer(
    version: int,
    correlation_id: int,
    answers: Sequence[FetchedPartition],
    *,
    error_code: int,
    session_id: int,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Sequence[Records | FilePart]:
    """Encode the complete frame of an answer that is not throttled: what is to be sent, in its order."""
    if version >= plain.FIRST and not node_endpoints:
        found = plain.answer(version, correlation_id, answers, error_code, session_id)
        if found is not None:
            return found
    return fetch.encode_response(
        version,
        correlation_id,
        fetched(answers, version),
        error_code=error_code,
        session_id=session_id,
        node_endpoints=node_endpoints,
    )


def fetch_params(request: fetch.FetchRequest, version: int, listener: str) -> FetchParams:
    """Return the parameters of the whole fetch. Consumers that may send their rack (v11+) may read from followers."""
    follower = request.replica_id >= 0
    return FetchParams(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        replica_id=request.replica_id,
        replica_epoch=request.replica_epoch,
        isolation=Isolation.LOG_END if follower else _ISOLATIONS[request.isolation > 0],
        only_leader=follower or version < RACK_SINCE,
        min_one=version >= 3,
        rack=request.rack_id or "",
        listener=listener,
    )


def fetch_asks(
    request: fetch.FetchRequest, version: int, topic_name: Callable[[TopicId], str | None]
) -> tuple[list[PartitionFetch], list[SessionKey]]:
    """Return (partitions asked, keys forgotten); an unknown topic id gives the empty topic name."""
    by_id = version >= TOPIC_IDS_SINCE
    asks = []
    for p in request.partitions:
        topic_id = p.topic_id or ZERO_TOPIC_ID
        topic = (topic_name(topic_id) if by_id else p.topic) or ""
        asks.append(
            PartitionFetch(
                tp=TopicPartition(topic, p.partition),
                offset=p.fetch_offset,
                max_bytes=p.max_bytes,
                leader_epoch=p.current_leader_epoch,
                last_fetched_epoch=p.last_fetched_epoch,
                log_start_offset=p.log_start_offset,
                topic_id=topic_id if by_id else ZERO_TOPIC_ID,
            )
        )
    return asks, [forgotten_key(*each) for each in request.forgotten]


def fetched(answers: Iterable[FetchedPartition], version: int) -> list[fetch.FetchedPartition]:
    """Return the answers as `protocol.fetch.encode_response` takes them."""
    by_id = version >= TOPIC_IDS_SINCE
    return [
        fetch.FetchedPartition(
            None if by_id else a.tp.topic,
            a.topic_id if by_id else None,
            a.tp.partition,
            int(a.error),
            a.high_watermark,
            a.records,
            a.last_stable_offset,
            a.log_start_offset,
            a.aborted,
            a.preferred_read_replica,
            a.diverging,
            a.leader,
        )
        for a in answers
    ]


# -- Following


def follower_frame(wanted: FollowerFetch, correlation_id: int, client_id: str) -> tuple[int, bytes | bytearray]:
    """Return (version, the complete frame of the request): v17 if all topics have ids, else v12 (facts §22)."""
    frame = plain_following.question(wanted, correlation_id, client_id)
    if frame is not None:
        return plain_following.VERSION, frame
    version, request = follower_request(wanted)
    return version, fetch_client.encode_request(version, correlation_id, client_id, request)


def follower_answer(
    version: int, frame: memoryview, topic_name: Callable[[TopicId], str | None]
) -> FollowerFetchAnswer:
    """Decode a leader's answer. Raises CorruptData. Partitions of topics that are no longer followed are left out."""
    if version == plain_following.VERSION:
        found = plain_following.answered(frame, topic_name)
        if found is not None:
            return found
    return translated(fetch_client.decode_response(version, frame), topic_name)


def follower_request(asked: FollowerFetch) -> tuple[int, fetch.FetchRequest]:
    """Return (version, request): v17 if all topics have ids, else v12 (facts §22)."""
    by_id = asked.uses_topic_ids
    request = fetch.FetchRequest(
        replica_id=asked.replica_id,
        max_wait_ms=asked.max_wait_ms,
        min_bytes=asked.min_bytes,
        partitions=[
            fetch.FetchPartition(
                None if by_id else ask.tp.topic,
                ask.topic_id if by_id else None,
                ask.tp.partition,
                ask.offset,
                ask.max_bytes,
                ask.leader_epoch,
                ask.last_fetched_epoch,
                ask.log_start_offset,
            )
            for ask in asked.partitions
        ],
        max_bytes=asked.max_bytes,
        session_id=asked.session_id,
        session_epoch=asked.session_epoch,
        forgotten=[
            (None if by_id else tp.topic, topic_id if by_id else None, tp.partition) for tp, topic_id in asked.forgotten
        ],
        replica_epoch=asked.replica_epoch,
    )
    return (FETCH_BY_ID if by_id else FETCH_BY_NAME), request


def translated(answer: FetchResponse, topic_name: Callable[[TopicId], str | None]) -> FollowerFetchAnswer:
    """Translate a leader's answer; partitions of topics that are no longer followed are left out."""
    partitions: list[FetchedPartition] = []
    for p in answer.partitions:
        topic = p.topic if p.topic is not None else topic_name(p.topic_id or ZERO_TOPIC_ID)
        if topic is None:
            continue
        partitions.append(
            FetchedPartition(
                tp=TopicPartition(topic, p.partition),
                error=ErrorCode(p.error_code) if p.error_code else ErrorCode.NONE,
                high_watermark=p.high_watermark,
                last_stable_offset=p.last_stable_offset,
                log_start_offset=p.log_start_offset,
                records=p.records,
                diverging=p.diverging_epoch,
                leader=p.current_leader,
                topic_id=p.topic_id or ZERO_TOPIC_ID,
            )
        )
    return FollowerFetchAnswer(ErrorCode(answer.error_code), answer.session_id, partitions, answer.throttle_ms)
