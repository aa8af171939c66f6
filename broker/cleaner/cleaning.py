"""One cleaning, from a lease to the parts that replace its segments: the work of the cleaner's child process.

Like a Spark job it gets only the answer of POST /leases (docs/leases.md). It reads the links, writes parts, and touches
no other files. Segments are read piece by piece; memory holds the keys of the dirty part and the surviving offsets of
one group.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from logyard.broker.cleaner import plain_passes
from logyard.broker.cleaner.leased_log import Cleaning, Json, segments_of
from logyard.broker.cleaner.passes import Engine, Passes
from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.dirty_keys import BYTES_PER_KEY
from logyard.broker.compaction.old_formats import expired_offsets
from logyard.broker.compaction.ranges import SegmentRange, group_segments
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.errors import CorruptData, StorageError
from logyard.broker.log.disk.port import Disk, remove_if_there

PIECE_BYTES = 1 << 20
# As much as the broker leaves free when parts come by HTTP: a full disk would take the log directory offline.
SPARE_BYTES = 64 << 20


def clean(
    lease: Json, keys_max: int, disk: Disk, throttle: Callable[[int], None], engine: Engine = plain_passes.ENGINE
) -> Json:
    """Decide and write the parts for a lease; returns the fields of its commit, and figures.

    Raises CorruptData (naming partition, segment, position and offset), StorageError (a failed disk, too little space),
    and FileNotFoundError if the lease's links are gone.
    """
    segments = segments_of(lease)
    work = Cleaning(lease, disk, throttle, segments)
    passes = engine.open(work, keys_max)
    start, end = lease["clean_offset"], lease["end_offset"]
    dirty = [segment for segment in segments if segment.last_offset >= start and segment.base_offset < end]
    with work.naming():
        range_end = passes.read_keys(dirty, start, end, _aborted(lease))
    survey = _survey(lease, range_end)
    touched = [segment for segment in segments if segment.base_offset < range_end]
    config = lease["config"]
    for group in group_segments(
        touched, segment_bytes=config["segment.bytes"], index_bytes=config["segment.index.bytes"]
    ):
        survey.next_group(group[0].base_offset)
        with work.naming():
            decision = passes.survey(group, survey)
        work.decided.update(decision.encode())
        work.survivors += len(decision.survivors)
        _rewrite(work, passes, group, decision)
    first = touched[0].base_offset if touched else range_end
    return _answer_of(work, first, range_end, work.decided.hexdigest())


def apply(
    lease: Json, decision: Decision, disk: Disk, throttle: Callable[[int], None], engine: Engine = plain_passes.ENGINE
) -> Json:
    """Write the parts for a decision made elsewhere, as far as the lease reaches; returns and raises as `clean`.

    Applying a part of the range is safe: the record that supersedes a removed one is in this log too, maybe in the
    active segment.
    """
    segments = segments_of(lease)
    work = Cleaning(lease, disk, throttle, segments)
    passes = engine.open(work, 0)
    range_end = min(decision.range_end, lease["end_offset"])
    within = replace(decision, range_end=range_end)
    touched = [segment for segment in segments if segment.base_offset < range_end]
    config = lease["config"]
    for group in group_segments(
        touched, segment_bytes=config["segment.bytes"], index_bytes=config["segment.index.bytes"]
    ):
        _rewrite(work, passes, group, within)
    work.survivors = len(decision.survivors)
    return _answer_of(work, decision.range_start, range_end, decision.sha256)


def _answer_of(work: Cleaning, range_start: int, range_end: int, sha256: str) -> Json:
    return {
        "range_start": min(range_start, range_end),
        "range_end": range_end,
        "sha256": sha256,
        "survivors": work.survivors,
        "groups": work.groups,
        "records_in": work.tally.records_in,
        "records_out": work.tally.records_out,
        "bytes_read": work.bytes_read,
        "bytes_written": work.bytes_written,
    }


def _aborted(lease: Json) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(a["producer_id"], a["first_offset"], a["last_offset"]) for a in lease["aborted_transactions"]
    ]


def _survey(lease: Json, range_end: int) -> Survey:
    producers = {p["producer_id"]: ActiveProducer(p["last_offset"], p["producer_epoch"]) for p in lease["producers"]}
    return Survey(
        topic=lease["topic"],
        partition=lease["partition"],
        leader_epoch=lease["leader_epoch"],
        range_start=0,
        range_end=range_end,
        now_ms=lease["now_ms"],
        delete_retention_ms=lease["config"]["delete.retention.ms"],
        # As in Kafka a replica decides by its own log: a batch whose horizon has passed was cleaned here before.
        tombstone_cutoff=lease["clean_offset"],
        aborted=_aborted(lease),
        producers=producers,
        expired=expired_offsets(
            zip(segments_of(lease), (s["mtime_ms"] for s in lease["segments"]), strict=True),
            lease["clean_offset"],
            lease["config"]["delete.retention.ms"],
        ),
    )


def _rewrite(work: Cleaning, passes: Passes, group: Sequence[SegmentRange], decision: Decision) -> None:
    """Write one group's part under another name and rename it; a single segment that is unchanged gets no part."""
    base = group[0].base_offset
    path = f"{work.lease['parts_dir']}/{base:020d}.part"
    before = Tally(work.tally.batches_in, work.tally.batches_out, work.tally.batches_verbatim)
    records_before = work.tally.records_out
    part = _Part(work, f"{path}.tmp")
    with work.naming():
        for piece, last_offset in passes.rewrite(group, decision):
            part.add(piece, last_offset)
    whole = work.tally.batches_verbatim - before.batches_verbatim == work.tally.batches_in - before.batches_in
    if len(group) == 1 and whole:
        work.disk.remove(part.path)
        return
    part.finish()
    work.disk.rename(part.path, path)
    work.groups.append(
        {
            "segments": [segment.base_offset for segment in group],
            "part": {
                "size": part.size,
                "sha256": part.digest.hexdigest(),
                "last_offset": part.last_offset,
                "records": work.tally.records_out - records_before,
            },
        }
    )


class _Part:
    """A part while it is written."""

    def __init__(self, work: Cleaning, path: str) -> None:
        self.path = path
        self.size = 0
        self.last_offset = -1
        self.digest = hashlib.sha256()
        self._work = work
        remove_if_there(work.disk, path)  # an attempt that failed may have left one that is longer
        self._file = work.disk.open(path, create=True, write=True)
        self._waiting = bytearray()

    def add(self, piece: bytes | memoryview, last_offset: int) -> None:
        self.last_offset = max(self.last_offset, last_offset)
        self._waiting += piece
        if len(self._waiting) >= PIECE_BYTES:
            self._write()

    def _write(self) -> None:
        _total, usable = self._work.disk.space(self._work.lease["parts_dir"])
        if usable < SPARE_BYTES + len(self._waiting):
            raise StorageError(f"{self.path}: {usable} bytes are free, {SPARE_BYTES} must stay so")
        data = bytes(self._waiting)
        self._file.write_at(data, self.size)
        self.digest.update(data)
        self.size += len(data)
        self._work.bytes_written += len(data)
        self._work.throttle(len(data))
        self._waiting.clear()

    def finish(self) -> None:
        self._write()
        self._file.sync()


def answer(request: Json, disk: Disk, throttle: Callable[[int], None], engine: Engine = plain_passes.ENGINE) -> Json:
    """Carry out a request `{"lease", "keys_max"}`; a failure is returned as `{"failed", "message"}`.

    `keys_max` is in keys of BYTES_PER_KEY, of which an engine may take fewer bytes for each.
    If the request has a `decision` (base64), it is applied; otherwise one is made from the log.
    `throttle(bytes)` paces the work. `failed` is `corrupt`, `storage` or `error` (a bug).
    """
    try:
        if "decision" in request:
            return apply(
                request["lease"], Decision.decode(base64.b64decode(request["decision"])), disk, throttle, engine
            )
        keys_max = request["keys_max"] * BYTES_PER_KEY // engine.bytes_per_key
        return clean(request["lease"], keys_max, disk, throttle, engine)
    except CorruptData as error:
        return {"failed": "corrupt", "message": str(error)}
    except (StorageError, FileNotFoundError) as error:
        return {"failed": "storage", "message": str(error)}
    except MemoryError as error:  # the machine's, which may pass; the log is not to blame
        return {"failed": "storage", "message": f"memory is short: {error}"}
    except Exception as error:  # the broker must get every failure
        return {"failed": "error", "message": f"{type(error).__name__}: {error}"}


def unthrottled(_size: int) -> None:
    """Never sleep."""
