"""How long hostile batches hold a broker: the loop's longest pause, another's Produce meanwhile, and memory.

Each bomb is some kilobytes; what it decompresses to, or says that it holds, is not. A pause is a wall-clock time: on a
machine with other work compare it with that of a bare event loop in a process of its own, beside it in each row.
"""

import struct
import threading
import time
from pathlib import Path

from logyard.broker.protocol import codec
from logyard.broker.records import build, compression
from logyard.broker.records.crc import crc32, crc32c
from logyard.broker.records.header import COUNT_AT, CRC_AT, HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD
from logyard.broker.records.stream import Record
from logyard.broker.records.varint import write_varint
from tests.benchmarks import bare_loop, frames, harness
from tests.benchmarks.harness import Row, Server, Wire

BOMBED, WIDE, UNKNOWN = "bombed", "wide", "unknown"
WIDE_PARTITIONS = 2000
SWOLLEN_BYTES = 200 << 20
TINY_RECORDS = 5_000_000
SECONDS = 5
PAUSE_MS = 20
CONFIG = {"offsets.topic.replication.factor": "1", "log.cleaner.enable": "false"}


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about two minutes."""
    with harness.cluster_of(directory / "bombs", 1, CONFIG) as cluster:
        (broker,) = harness.servers(cluster)
        harness.create_topics([broker], {frames.TOPIC: (1, 1)}, {})
        harness.create_topics([broker], {BOMBED: (1, 1)}, {"cleanup.policy": "compact"})
        harness.create_topics([broker], {WIDE: (WIDE_PARTITIONS, 1)}, {})
        rows = [_row(broker, "nobody is hostile", None)]
        for name, frame in bombs().items():
            rows.append(_row(broker, name, frame))
        return rows


def bombs() -> dict[str, bytes]:
    """Produce requests to a compacted topic, by what is bad about them."""
    found = {}
    one = _record(b"k" * (SWOLLEN_BYTES // 2), b"v" * (SWOLLEN_BYTES // 2))
    tiny = _record(b"k", None) * TINY_RECORDS
    varints = b"\xff" * 10_000_000
    for number in (compression.GZIP, compression.LZ4, compression.ZSTD):
        name = compression.NAMES[number]
        found[f"one record of 200 MiB, {name}"] = _produce(_batch(one, number, 1))
        found[f"5 million records, {name}"] = _produce(_batch(tiny, number, TINY_RECORDS))
        found[f"a count of two thousand million, {name}"] = _produce(_batch(tiny, number, 2**31 - 1))
        found[f"varints without an end, {name}"] = _produce(_batch(varints, number, 1000))
    small = _record(b"k", None) * 2_000_000
    found["2 million records, snappy"] = _produce(_batch(small, compression.SNAPPY, 2_000_000))
    found["100,000 records as they are"] = _produce(_batch(_record(b"k", None) * 100_000, compression.NONE, 100_000))
    for magic in (0, 1):
        found[f"300,000 old messages in a wrapper, v{magic}"] = _old_produce(magic, 300_000)
        found[f"30,000 old messages as they are, v{magic}"] = _produce(_old_messages(magic, 30_000), version=2)
    found.update(_many_parts())
    return found


def _many_parts() -> dict[str, bytes]:
    """Produce requests of many parts, each of which is small."""
    tiny = bytes(build.build([Record(0, frames.RECORD_MS, b"k", None)]))
    wide = [(WIDE, index, tiny) for index in range(WIDE_PARTITIONS)]
    return {
        "13,000 batches of one partition": _produce(tiny * 13_000),
        "one partition named 13,000 times": _produce_parts([(BOMBED, 0, tiny)] * 13_000),
        "2,000 partitions": _produce_parts(wide),
        "2,000 partitions, acks=all": _produce_parts(wide, acks=-1),
        "20,000 partitions that do not exist": _produce_parts([(UNKNOWN, n, tiny) for n in range(20_000)]),
        "2 million parts without records": _produce_parts([(UNKNOWN, 0, b"")] * 2_000_000),
    }


def _row(broker: Server, what: str, bomb: bytes | None) -> Row:
    """Throw the bomb for some seconds, again and again, while somebody else produces."""
    ended = threading.Event()
    hostile = threading.Thread(target=_throw, args=(broker, bomb, ended), daemon=True)
    with bare_loop.beside() as bare:
        broker.longest_pause_ms()
        before = broker.resident_mb()
        if bomb is not None:
            hostile.start()
        wire, frame, took, most = Wire(broker, 1), frames.produce(1000, 1), [], before
        begun = time.perf_counter()
        while time.perf_counter() < begun + SECONDS:
            sent = time.perf_counter()
            wire.ask(frame)
            took.append(time.perf_counter() - sent)
            most = max(most, broker.resident_mb())
            time.sleep(0.005)
        pause = broker.longest_pause_ms()
    ended.set()
    if bomb is not None:
        hostile.join(timeout=60)
    broker.longest_pause_ms()
    p99, size = harness.percentile(took, 0.99) * 1000, len(bomb or b"") / 1000
    note = (
        f"a bare loop {bare.value:.1f} ms; {size:,.0f} KB sent; another's Produce p99 {p99:.1f} ms; "
        f"memory +{most - before:.0f} MB"
    )
    return Row(f"Longest pause, {what}", pause, "ms", bound=PAUSE_MS, note=note)


def _throw(broker: Server, bomb: bytes, ended: threading.Event) -> None:
    wire = Wire(broker, 1)
    while not ended.is_set():
        try:
            wire.ask(bomb)
        except (OSError, struct.error):  # refused, and the connection closed
            wire = Wire(broker, 1)
    wire.close()


def _record(key: bytes, value: bytes | None) -> bytes:
    content = b"\0\0\0" + write_varint(len(key)) + key
    content += write_varint(-1) if value is None else write_varint(len(value)) + value
    content += b"\0"
    return write_varint(len(content)) + content


def _batch(body: bytes, number: int, count: int) -> bytes:
    made = bytearray(build.build([Record(0, frames.RECORD_MS, b"k", None)], compression=number)[:HEADER_SIZE])
    made += compression.compress(number, body)
    for at, value in ((LENGTH_AT, len(made) - LOG_OVERHEAD), (23, count - 1), (COUNT_AT, count)):
        struct.pack_into(">i", made, at, value)
    struct.pack_into(">I", made, CRC_AT, crc32c(memoryview(made)[21:]))
    return bytes(made)


def _produce(batch: bytes, version: int = 9) -> bytes:
    return _produce_parts([(BOMBED, 0, batch)], version=version)


def _produce_parts(parts: list[tuple[str, int, bytes]], *, acks: int = 1, version: int = 9) -> bytes:
    """A Produce of these (topic, partition, records), all of one topic."""
    partitions = [{"index": index, "records": records} for _, index, records in parts]
    tree = {"acks": acks, "timeout_ms": 30_000, "topic_data": [{"name": parts[0][0], "partition_data": partitions}]}
    return codec.encode_request(frames.PRODUCE, version, 1, frames.CLIENT, tree)


def _message(magic: int, offset: int, codec_number: int, key: bytes | None, value: bytes) -> bytes:
    content = struct.pack(">bb", magic, codec_number) + (struct.pack(">q", frames.RECORD_MS) if magic else b"")
    content += struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
    content += struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(content) + 4, crc32(content)) + content


def _old_messages(magic: int, count: int) -> bytes:
    return _message(magic, 0, 0, b"k", b"") * count


def _old_produce(magic: int, count: int) -> bytes:
    packed = compression.compress(compression.GZIP, _old_messages(magic, count))
    return _produce(_message(magic, count - 1, compression.GZIP, None, packed), version=2)
