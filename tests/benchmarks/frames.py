"""The request frames that the benchmarks send."""

from logyard.broker.protocol import codec
from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import encode_request as encode_fetch
from logyard.broker.records import batch

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS = 0, 1, 2, 3, 19
TOPIC, WIDE_TOPIC, COLD_TOPIC, SMALL_TOPIC, TIMED_TOPIC = "bench", "wide", "cold", "small", "timed"
CLIENT = "bench"
RECORD_MS = 1_700_000_000_000


def produce(
    record_bytes: int, records: int, acks: int = 1, *, topic: str = TOPIC, partition: int = 0, time_ms: int = RECORD_MS
) -> bytes:
    """Produce v9 of one batch."""
    made = batch.build([batch.Record(n, time_ms, None, b"x" * record_bytes) for n in range(records)])
    part = {"index": partition, "records": bytes(made)}
    tree = {"acks": acks, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": [part]}]}
    return codec.encode_request(PRODUCE, 9, 1, CLIENT, tree)


def fetch(
    offset: int,
    max_bytes: int,
    *,
    max_wait_ms: int = 500,
    topic: str = TOPIC,
    partition: int = 0,
    version: int = 12,
) -> bytes:
    """Fetch of one partition, without a session."""
    ask = FetchPartition(topic, None, partition, offset, max_bytes)
    return encode_fetch(version, 1, CLIENT, FetchRequest(-1, max_wait_ms, 1, [ask], session_epoch=-1))


def follower_fetch(
    follower: int, session_id: int, session_epoch: int, asks: list[FetchPartition], *, max_wait_ms: int = 0
) -> bytes:
    """Fetch v12 of a follower, in a session."""
    asked = FetchRequest(follower, max_wait_ms, 1, asks, 10 << 20, session_id=session_id, session_epoch=session_epoch)
    return encode_fetch(12, 1, CLIENT, asked)


def offset_at(time_ms: int, *, topic: str) -> bytes:
    """ListOffsets v5 by time, of one partition."""
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": time_ms}
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [part]}]}
    return codec.encode_request(LIST_OFFSETS, 5, 1, CLIENT, fields)


def metadata() -> bytes:
    """Metadata v9 of every topic."""
    return codec.encode_request(METADATA, 9, 1, CLIENT, {"topics": None})


def create_topic(name: str, partitions: int, replicas: int = 1) -> bytes:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": replicas}
    return codec.encode_request(CREATE_TOPICS, 5, 1, CLIENT, {"topics": [topic], "timeout_ms": 30_000})
