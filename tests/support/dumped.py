"""Files of a partition with about everything that a dump has to show, on a real disk."""

import uuid
from pathlib import Path

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.producers import Origin
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from logyard.broker.records.downconvert import downconvert
from tests.support.logs import NOW, TP, create_log, marker, produced


def write_log(path: Path) -> Path:
    """A closed log with two producers, aborted transactions, epochs and several segments."""
    config = TopicConfig(segment_bytes=20_000, index_interval_bytes=500)
    log = create_log(OsDisk(), TP, str(path), config, now_ms=NOW)
    log.assign_topic_id(uuid.UUID(int=5))
    sequences = {7: 0, 8: 0}
    for number in range(300):
        producer_id = 7 + number % 2
        data = produced(
            [b"v%d" % number] * 3,
            timestamp=NOW + number * 10,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
            transactional=producer_id == 8,
        )
        log.append_as_leader(data, number // 100, now_ms=NOW)
        sequences[producer_id] += 3
        if number % 60 == 59:
            kind = batch.COMMIT if number == 59 else batch.ABORT
            log.append_as_leader(
                marker(kind, producer_id=8, coordinator_epoch=2), number // 100, now_ms=NOW, origin=Origin.COORDINATOR
            )
    log.close()
    return path


def write_oddities(path: Path) -> Path:
    """One segment with every codec, headers, nulls, a gap, bytes that are no UTF-8, and old messages."""
    path.mkdir()
    data = bytearray()
    offset = 0
    for codec in range(5):
        records = [
            Record(offset, NOW + offset, b"key-%d" % codec, b"value " * 20, (("h1", b"x"), ("h2", None))),
            Record(offset + 1, NOW + offset, None, b"\xff\xfe"),
            Record(offset + 2, NOW + offset, b"", None),
        ]
        data += batch.build(records, base_offset=offset, leader_epoch=codec, compression=codec)
        offset += 3
    offset += 4  # as a compacted log has it
    later = [Record(offset + n, NOW, b"k", b"v") for n in range(2)]
    data += batch.build(
        later, base_offset=offset, leader_epoch=9, producer_id=3, producer_epoch=1, base_sequence=2**31 - 1
    )
    offset += 2
    for magic in (0, 1):
        old = batch.build(
            [Record(offset, NOW, b"k", b"old"), Record(offset + 1, NOW + 1, None, b"x")], base_offset=offset
        )
        data += downconvert(memoryview(old), magic)
        offset += 2
        packed = batch.build([Record(offset, NOW, b"k", b"o" * 50)], base_offset=offset, compression=1)
        data += downconvert(memoryview(packed), magic)
        offset += 1
    (path / "00000000000000000000.log").write_bytes(data)
    return path


def write_broken(path: Path) -> Path:
    """A segment whose second batch has a wrong byte, whose end is cut short, and whose indexes lie."""
    path.mkdir()
    made = [batch.build([Record(n, NOW + n, b"k", b"v" * 30)], base_offset=n, leader_epoch=0) for n in range(4)]
    made[1][-2] ^= 1
    data = b"".join(bytes(one) for one in made)
    size = len(made[0])
    (path / "00000000000000000000.log").write_bytes(data[:-5])
    entries = [(1, size), (3, 2 * size)]
    (path / "00000000000000000000.index").write_bytes(
        b"".join(o.to_bytes(4, "big") + at.to_bytes(4, "big") for o, at in entries)
    )
    times = [(NOW, 0), (NOW + 5, 1), (NOW + 4, 2)]
    (path / "00000000000000000000.timeindex").write_bytes(
        b"".join(t.to_bytes(8, "big") + o.to_bytes(4, "big") for t, o in times)
    )
    return path
