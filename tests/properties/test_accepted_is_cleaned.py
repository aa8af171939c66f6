"""Whatever a leader accepts from odd and hostile producers can be cleaned: by both engines, with the same bytes, and
nothing that sound producers wrote last is lost."""

import random
import struct
from collections.abc import Iterator

import pytest

from logyard.broker.cleaner import cleaning, compiled_passes, plain_passes
from logyard.broker.cleaner.leased_log import Json
from logyard.broker.cleaner.passes import Engine
from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError
from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import read_whole
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.records import batch
from logyard.broker.records.header_validation import check_produce_version
from tests.support.logs import NOW, new_log, produced
from tests.support.odd_batches import Odd, requests

COMPACTED = TopicConfig(segment_bytes=4000, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
SOUND = (b"sound-0", b"sound-1", b"sound-2")


def odd_requests(seed: int) -> Iterator[Odd]:
    """At most 60 requests; fewer where a seed comes upon numbers that no request can hold."""
    made = requests(seed, 60, {"compacted": {}}, NOW)
    while True:
        try:
            yield next(made)
        except (StopIteration, struct.error):
            return


def filled(seed: int) -> tuple[PartitionLog, int, dict[bytes, int]]:
    """A log, how many odd requests it took, and where the last value of each sound key is."""
    rng, log = random.Random(seed), new_log(MemoryDisk(), COMPACTED)
    accepted, last = 0, {}
    for odd in odd_requests(seed):
        try:
            whole = check_produce_version(memoryview(bytearray(odd.records)), odd.version)
            if len(whole):
                log.append_as_leader(whole, 0, now_ms=NOW)
                accepted += 1
        except ApiError:
            pass
        key = rng.choice(SOUND)
        last[key] = log.log_end_offset
        log.append_as_leader(produced([b"v"], key=key), 0, now_ms=NOW)
    return log, accepted, last


def leased(log: PartitionLog) -> Json:
    rows = []
    for number, segment in enumerate(log.segments):
        row = {"base_offset": segment.base_offset, "last_offset": log.end_of(number) - 1, "size": segment.size}
        rows.append({**row, "max_timestamp": -1, "mtime_ms": 0, "files": {"log": segment.size}})
    return {
        "topic": "t",
        "partition": 0,
        "leader_epoch": 0,
        "now_ms": NOW,
        "clean_offset": 0,
        "end_offset": log.log_end_offset,
        "segments": rows,
        "links_dir": log.directory,
        "parts_dir": "/parts",
        "producers": [],
        "aborted_transactions": [],
        "config": {"segment.bytes": 1 << 20, "segment.index.bytes": 1 << 20, "delete.retention.ms": 1000},
    }


def cleaned(log: PartitionLog, engine: Engine) -> dict[int, bytes]:
    """The log after a cleaning: what is in each segment that is left, by base offset."""
    log.disk.remove_tree("/parts")
    log.disk.make_directory("/parts")
    answer = cleaning.answer({"lease": leased(log), "keys_max": 1000}, log.disk, cleaning.unthrottled, engine)
    assert "failed" not in answer, answer
    left = {s.base_offset: read_whole(log.disk, s.path(layout.LOG)) for s in log.segments}
    for group in answer["groups"]:
        first, *others = group["segments"]
        left[first] = read_whole(log.disk, f"/parts/{first:020d}.part")
        for base in others:
            del left[base]
    return left


@pytest.mark.parametrize("block", range(4))
def test_what_a_leader_accepts_can_be_cleaned(block: int) -> None:
    taken = 0
    for seed in range(block * 30, block * 30 + 30):
        log, accepted, last = filled(seed)
        taken += accepted
        plain, compiled = (cleaned(log, engine) for engine in (plain_passes.ENGINE, compiled_passes.ENGINE))
        assert plain == compiled, seed
        whole = memoryview(b"".join(data for _, data in sorted(plain.items())))
        kept = {
            record.offset: record.key
            for at, header in batch.iter_headers(whole)
            for record in batch.records(whole, at)
            if record.key in SOUND and header.base_offset <= record.offset <= header.last_offset
        }
        assert {last[key]: key for key in last} == kept, seed
    assert taken > 300
