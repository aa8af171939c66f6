"""`python -m logyard.spark_jobs.warm`: every loop of the jobs and the cleaner is compiled, and kept, as for an image.

So are the classes that Spark loads at its start.

numba compiles for the types that it meets, so each loop is run as the jobs run it, over a log of a few records.
"""

import os
import sys
import tempfile
import time

import pyarrow as pa

from logyard.broker.compaction.decision import Survey
from logyard.broker.compiled import kernel_place
from logyard.broker.compiled.chunks import trusted_chunks
from logyard.broker.compiled.dirty_table import DirtyTable
from logyard.broker.compiled.key_table import FIRST_SLOTS, KeyTable
from logyard.broker.records.build import build
from logyard.broker.records.stream import Record
from logyard.spark_jobs import driver_jvm
from logyard.spark_jobs.audit.divergence import records_of
from logyard.spark_jobs.audit.partition import audit_bin, judge_rows
from logyard.spark_jobs.audit.segment import SegmentAudit
from logyard.spark_jobs.compact.rewrite import Rewriter
from logyard.spark_jobs.compact.shuffle import hash_segment, merge_bucket
from logyard.spark_jobs.compact.survey import survey_segments
from logyard.spark_jobs.export.latest_rows import entries_of
from logyard.spark_jobs.export.upsert import buckets_of
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica
from logyard.spark_jobs.segments.splits import COLUMNS, Split, split_rows

# More keys than the first table has room for, so that it grows.
KEYS = FIRST_SLOTS
NOW_MS = 1_700_000_000_000
SEED = bytes(range(16))


def warm() -> None:
    """Run every loop once."""
    with tempfile.TemporaryDirectory(prefix="logyard-warm-") as directory:
        segment = _written(directory)
        _audit(segment)
        for _ in records_of(segment):
            pass
        _export(segment)
        _compact(segment, directory)
        _shuffle(segment)
        _clean(segment)


def load(job: str) -> None:
    """Run the loops that nearly every run of a job needs, over a few records: those that are kept are loaded."""
    with tempfile.TemporaryDirectory(prefix="logyard-warm-") as directory:
        segment = _written(directory, 8)
        if job == "audit":
            _audit(segment)
        elif job == "compact":
            _compact(segment, directory)
        elif job == "export":
            _export(segment)


def _written(directory: str, keys: int = KEYS) -> SegmentFile:
    """Write a segment of three batches: keys, the same keys again, and tombstones beside what has no key."""
    headers = (("a", b"b"), ("none", None))
    first = [Record(n, NOW_MS, b"key %d" % n, b"value", headers) for n in range(keys)]
    again = [Record(keys + n, NOW_MS, b"key %d" % n, b"value") for n in range(0, keys, 2)]
    base = again[-1].offset + 1
    last = [Record(base, NOW_MS, b"key 1", None), Record(base + 1, NOW_MS, None, b"value")]
    data = b"".join(build(records, leader_epoch=0) for records in (first, again, last))
    with open(os.path.join(directory, f"{0:020d}.log"), "xb") as file:
        file.write(data)
    return SegmentFile("warm", 0, 0, 0, len(data), {"log": len(data)}, directory, last_offset=base + 1)


def _audit(segment: SegmentFile) -> None:
    work = SegmentAudit(segment, deep=True, leader_epochs=((0, 0),), compacted=True, now_ms=NOW_MS)
    judge_rows([_replica(segment)], (rows for _, rows in audit_bin([work])))


def _replica(segment: SegmentFile) -> Replica:
    end = segment.last_offset + 1
    return Replica(
        topic=segment.topic,
        partition=segment.partition,
        broker_id=segment.replica,
        directory=segment.directory,
        is_leader=True,
        leader_epoch=0,
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        clean_offset=0,
        now_ms=NOW_MS,
        policy="compact",
        topic_id=None,
        cluster_id=None,
        leader_epochs=((0, 0),),
        aborted=(),
        segments=(segment,),
    )


def _export(segment: SegmentFile) -> None:
    end = segment.last_offset + 1
    split = Split(segment, 0, segment.size, 0, end, (), committed_only=True, columns=COLUMNS, plan_hash="")
    for _ in split_rows(split, hashed=True):
        pass
    keys = pa.array([b"a", b"b"], pa.binary())
    buckets_of(keys, 2)
    KeyTable(SEED).merge(entries_of(pa.record_batch({"key": keys, "offset": [0, 1]}), SEED))


def _compact(segment: SegmentFile, directory: str) -> None:
    decision = survey_segments([segment], _survey(segment), KeyTable())
    Rewriter(decision, directory).rewrite([segment])


def _shuffle(segment: SegmentFile) -> None:
    dealt = hash_segment(segment, _survey(segment), SEED, 2)
    merge_bucket((piece for _, piece in dealt), SEED)


def _clean(segment: SegmentFile) -> None:
    """As the brokers' own cleaner does."""
    table = DirtyTable(2 * KEYS)
    for start in (0, KEYS):  # from the second on, keys of the clean part are looked up
        chunks = [("warm", chunk) for chunk in trusted_chunks(segment.open(), "warm")]
        table.read(chunks, start, segment.last_offset + 1, ())
        table.survey(chunks, _survey(segment))


def _survey(segment: SegmentFile) -> Survey:
    return Survey(
        topic=segment.topic,
        partition=segment.partition,
        leader_epoch=0,
        range_start=0,
        range_end=segment.last_offset + 1,
        now_ms=NOW_MS,
        delete_retention_ms=0,
        tombstone_cutoff=0,
    )


def main() -> int:
    """Say how long it took, and where they are kept."""
    begun = time.monotonic()
    warm()
    place = os.environ.get(kernel_place.CHOSEN) or "the directory that is chosen where none is named"
    print(f"all loops are compiled after {time.monotonic() - begun:.1f} s, and kept in {place}", flush=True)
    begun = time.monotonic()
    if archive := driver_jvm.make():
        print(f"Spark's classes are kept in {archive} after {time.monotonic() - begun:.1f} s. Jobs of the operators on")
        print(f"this machine use them, others with --conf '{driver_jvm.SETTING}={driver_jvm.options()}'")
    else:
        print("Spark's classes are not kept: no JVM of Java 13 or later ran a job here. Jobs start without them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
