"""Partition directories on disk as Kafka writes them: logs, indexes, checkpoints; built with struct alone."""

import struct
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from tests.support.old_logs import AnyBatch, heads


def write_segment(directory: Path, batches: Sequence[AnyBatch], base: int | None = None, interval: int = 100) -> Path:
    """Write one closed segment with its indexes; returns the log's path."""
    base = batches[0].base if base is None else base
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(b.encode() for b in batches))
    index_log(path, interval)
    return path


def index_log(path: Path, interval: int = 100) -> None:
    """Write the indexes of a closed segment's log."""
    base = int(path.stem)
    index, times = b"", b""
    since, position, latest, latest_at, written = 0, 0, -1, -1, -1
    for b in heads(path.read_bytes()):
        if since > interval:
            index += struct.pack(">ii", b.last - base, position)
            if latest > written:
                times += struct.pack(">qi", latest, latest_at - base)
                written = latest
            since = 0
        if b.max_timestamp > latest:
            latest, latest_at = b.max_timestamp, b.last
        position += b.size
        since += b.size
    if latest > written:
        times += struct.pack(">qi", latest, latest_at - base)
    path.with_suffix(".index").write_bytes(index)
    path.with_suffix(".timeindex").write_bytes(times)


def write_txn_indexes(directory: Path, aborted: Sequence[tuple[int, int, int, int]]) -> None:
    """Write the transaction indexes of closed segments.

    :param aborted: producer id, first offset, last offset (the marker's), last stable offset.
    """
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    for base, end in pairwise(bases):
        entries = [struct.pack(">hqqqq", 0, *row) for row in sorted(aborted, key=itemgetter(2)) if base <= row[2] < end]
        if entries:
            (directory / f"{base:020d}.txnindex").write_bytes(b"".join(entries))


def write_partition(
    log_dir: Path,
    name: str,
    segments: Sequence[Sequence[AnyBatch]],
    *,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
    high_watermark: int | None = None,
    clean_offset: int | None = None,
) -> Path:
    """Write a partition's directory, the last segment the active one (its indexes preallocated), and its
    checkpoints."""
    directory = log_dir / name
    directory.mkdir(parents=True)
    for batches in segments:
        write_segment(directory, batches)
    active = directory / f"{segments[-1][0].base:020d}"
    active.with_suffix(".index").write_bytes(bytes(1024))
    active.with_suffix(".timeindex").write_bytes(bytes(1020))
    lines = "".join(f"{e} {o}\n" for e, o in epochs)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    topic, _, partition = name.rpartition("-")
    end = segments[-1][-1].last + 1
    marks = {
        "replication-offset-checkpoint": end if high_watermark is None else high_watermark,
        "cleaner-offset-checkpoint": clean_offset,
    }
    for file, offset in marks.items():
        path = log_dir / file
        known = path.read_text().splitlines()[2:] if path.exists() else []
        if offset is not None:
            known.append(f"{topic} {partition} {offset}")
        path.write_text(f"0\n{len(known)}\n" + "".join(f"{line}\n" for line in known))
    return directory
