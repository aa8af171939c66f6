"""What the codecs cost, in microseconds of CPU per call: `python tests/benchmarks/bench_codec.py`.

The least of several rounds counts: on a shared machine the rest is the neighbours'.
"""

import time
from collections.abc import Callable
from typing import Any

from logyard.broker.protocol import codec, fetch, fetch_client, produce
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.records import batch
from logyard.broker.records.batch import Bounds, Record

ROUNDS = 5


def microseconds(act: Callable[[], Any], calls: int) -> float:
    """CPU microseconds of one call, in the best of the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(calls):
            act()
        best = min(best, time.process_time() - begun)
    return best / calls * 1e6


def one_batch(records_bytes: int) -> bytearray:
    return batch.build([Record(n, 1_700_000_000_000, None, bytes(1024)) for n in range(records_bytes // 1024)])


def produce_frame(version: int, records: bytearray) -> memoryview:
    tree = {"acks": 1, "timeout_ms": 1, "topic_data": [{"name": "t", "partition_data": [{"records": records}]}]}
    return memoryview(bytearray(codec.encode_request(0, version, 1, "client", tree)))[4:]


def fetch_frame(version: int, partitions: int) -> memoryview:
    asked = [fetch.FetchPartition("topic", None, n, 5, 1 << 20) for n in range(partitions)]
    return memoryview(fetch_client.encode_request(version, 1, "client", fetch.FetchRequest(-1, 500, 1, asked)))[4:]


def parsed_produce(frame: memoryview) -> produce.ProduceRequest:
    header = parse_request_header(frame)
    return produce.parse_request(header.api_version, header.body)


def parsed_fetch(frame: memoryview) -> fetch.FetchRequest:
    header = parse_request_header(frame)
    return fetch.parse_request(header.api_version, header.body)


def checked(view: memoryview) -> None:
    header = batch.parse_header(view)
    batch.validate_client_batch(view, 0, header, Bounds(max_message_bytes=2 << 20))
    batch.stamp(view, 0, 0, 7)


def metadata(partitions: int) -> dict[str, Any]:
    partition = {"leader_id": 1, "leader_epoch": 3, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    topics = [
        {"name": f"topic-{t}", "partitions": [partition | {"partition_index": p} for p in range(10)]}
        for t in range(partitions // 10)
    ]
    return {"brokers": [{"node_id": n, "host": "localhost", "port": 9092} for n in range(3)], "topics": topics}


def leader_and_isr(partitions: int) -> memoryview:
    state = {"leader": 1, "isr": [1, 2, 3], "replicas": [1, 2, 3]}
    states = [state | {"partition_index": n} for n in range(partitions)]
    tree = {"topic_states": [{"topic_name": "t", "partition_states": states}]}
    return memoryview(codec.encode_request(4, 7, 1, None, tree))[15:]


def main() -> None:
    small, large = one_batch(16 * 1024), one_batch(1024 * 1024)
    frames = {v: produce_frame(v, small) for v in (8, 9, 11)}
    fetches = {n: fetch_frame(12, n) for n in (0, 1, 100)}
    views = {name: memoryview(data) for name, data in (("16 KB", small), ("1 MB", large))}
    outcome = [produce.PartitionOutcome("t", 0, 0, 5)]
    fetched = [fetch.FetchedPartition("topic", None, 0, 0, 9, large)]
    tree, isr = metadata(1000), leader_and_isr(100)
    answer = memoryview(codec.encode_response(3, 12, 1, tree))[4:]
    benches: list[tuple[str, Callable[[], Any], int]] = [
        *((f"header + Produce v{v}, 16 KB", lambda f=f: parsed_produce(f), 20_000) for v, f in frames.items()),
        ("Produce v9 answer", lambda: produce.encode_response(9, 1, outcome), 20_000),
        *((f"batch header, checks, stamp, {n}", lambda v=v: checked(v), 2_000) for n, v in views.items()),
        ("open a batch of 1024 records", lambda: batch.records(large), 100),
        *((f"header + Fetch v12, {n} partitions", lambda f=f: parsed_fetch(f), 2_000) for n, f in fetches.items()),
        ("Fetch v12 answer, 1 MB", lambda: fetch.encode_response(12, 1, fetched), 20_000),
        ("Metadata v12 answer, 1000 partitions: write", lambda: codec.encode_response(3, 12, 1, tree), 50),
        ("Metadata v12 answer, 1000 partitions: read", lambda: codec.decode_response(3, 12, answer), 50),
        ("LeaderAndIsr v7, 100 partitions: read", lambda: codec.decode_request(4, 7, isr), 500),
        ("Heartbeat v4 answer", lambda: codec.encode_response(12, 4, 1, {}), 20_000),
    ]
    for name, act, calls in benches:
        print(f"{name:48s} {microseconds(act, calls):10.1f} µs")


if __name__ == "__main__":
    main()
