"""Random histories cleaned in rounds by the built-in cleaner, which knows only the dirty part's keys and at most a
limit of them; after each round the log equals the model, and in the end it is clean. The compiled engine writes the
same bytes as the plain one, and answers the same."""

import random

import pytest

from logyard.broker.cleaner import cleaning, compiled_passes
from logyard.broker.cleaner.leased_log import Json
from logyard.broker.clock import ManualClock
from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.log import layout
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import read_whole, write_whole
from tests.properties.test_compaction_model import DELETE_RETENTION_MS, as_batches, check, cut, producers_of
from tests.support import compaction_model as model
from tests.support.batches import Batch, read_back


def leased(
    disk: MemoryDisk,
    segments: list[list[Batch]],
    clean_offset: int,
    end_offset: int,
    now_ms: int,
    aborted: list[AbortedTransaction],
    producers: dict[int, ActiveProducer],
    segment_bytes: int,
) -> Json:
    """Write segments as a lease's links; returns the lease's answer."""
    disk.remove_tree("/lease")
    disk.make_directory("/lease/links")
    disk.make_directory("/lease/parts")
    rows = []
    for segment in segments:
        data = b"".join(b.encode() for b in segment)
        write_whole(disk, f"/lease/links/{layout.file_name(segment[0].base, layout.LOG)}", data)
        row = {"base_offset": segment[0].base, "last_offset": segment[-1].last, "size": len(data)}
        rows.append({**row, "max_timestamp": -1, "mtime_ms": 0, "files": {"log": len(data), "index": 0}})
    return {
        "topic": "t",
        "partition": 0,
        "leader_epoch": 3,
        "now_ms": now_ms,
        "clean_offset": clean_offset,
        "end_offset": end_offset,
        "segments": rows,
        "links_dir": "/lease/links",
        "parts_dir": "/lease/parts",
        "producers": [
            {"producer_id": i, "last_offset": p.last_offset, "producer_epoch": p.producer_epoch}
            for i, p in producers.items()
        ],
        "aborted_transactions": [a._asdict() for a in aborted],
        "config": {"segment.bytes": segment_bytes, "segment.index.bytes": 10**7, "delete.retention.ms": 1000},
    }


def parts_of(disk: MemoryDisk, made: Json) -> list[bytes]:
    return [read_whole(disk, f"/lease/parts/{group['segments'][0]:020d}.part") for group in made["groups"]]


def after_commit(disk: MemoryDisk, segments: list[list[Batch]], made: Json) -> bytes:
    """Return the log's contents after the parts replaced the segments."""
    parts = {group["segments"][0]: group for group in made["groups"]}
    replaced = {base for group in made["groups"] for base in group["segments"]}
    out = b""
    for segment in segments:
        base = segment[0].base
        if base in parts:
            data = read_whole(disk, f"/lease/parts/{base:020d}.part")
            said = parts[base]["part"]
            seen = read_back(data)
            assert (len(data), seen[-1].last) == (said["size"], said["last_offset"])
            assert sum(len(s.records) for s in seen) == said["records"]
            out += data
        elif base not in replaced:
            out += b"".join(b.encode() for b in segment)
    assert {p.name for p in disk.list("/lease/parts")} == {f"{base:020d}.part" for base in parts}
    return out


def run_history(seed: int) -> int:
    rng = random.Random(seed)
    disk = MemoryDisk(ManualClock().now_ms)
    log = model.random_log(rng, rng.randrange(1, 60))
    aborted = [AbortedTransaction(*row) for row in log.aborted_index()]
    now_ms = model.START_MS + 10**7
    clean_offset = log.batches[0].base
    stopped_early = 0
    for turn in range(12):
        bounds = [b.base for b in log.batches if b.base >= clean_offset] + [log.end]
        bounds = [b for b in bounds if log.open_from is None or b <= log.open_from]
        if not bounds:
            break
        end = max(bounds) if turn > 2 else rng.choice(bounds)
        inside = [b for b in log.batches if b.base < end]
        if not inside:
            continue
        segments = cut(rng, inside)
        producers = producers_of(rng, log)
        lease = leased(disk, segments, clean_offset, end, now_ms, aborted, producers, rng.choice([300, 10**6]))
        keys_max = rng.choice([1, 3, 1000])
        made = cleaning.clean(lease, keys_max, disk, cleaning.unthrottled)
        parts = parts_of(disk, made)
        again = cleaning.clean(lease, keys_max, disk, cleaning.unthrottled, compiled_passes.ENGINE)
        assert parts_of(disk, again) == parts
        assert {**again, "bytes_read": 0} == {**made, "bytes_read": 0}
        range_end = made["range_end"]
        assert range_end == end or (clean_offset < range_end < end)
        stopped_early += range_end < end
        untouched = b"".join(b.encode() for b in log.batches if b.base >= end)
        seen = read_back(after_commit(disk, segments, made) + untouched)
        cutoff = clean_offset
        check(
            log,
            seen,
            Survey("t", 0, 3, log.batches[0].base, range_end, now_ms, DELETE_RETENTION_MS, cutoff, aborted, producers),
        )
        log = model.after(log, as_batches(seen))
        clean_offset = range_end
        now_ms += rng.choice([500, 2000])
    return stopped_early


@pytest.mark.parametrize("block", range(4))
def test_every_round_leaves_what_the_model_keeps(block: int) -> None:
    assert sum(run_history(seed) for seed in range(block * 40, block * 40 + 40)) > 10
