"""What a COMPACT or AUDIT task does in a second on one core, beside the bare work: reading the same files, checking the
same checksums, opening the same batches; and how much memory a task of 20 million keys takes.

`python -m tests.benchmarks.bench_compact --megabytes 8 --keys 200000` is a quick look.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import CHUNK_BYTES, Chunk, opened_parts, read_chunks, walk
from logyard.broker.compiled.key_table import KeyTable
from logyard.broker.records import batch, compression
from logyard.broker.records.batch import Record
from logyard.spark_jobs.audit.segment import SegmentAudit, SegmentAuditor
from logyard.spark_jobs.compact import rewrite as compacting
from logyard.spark_jobs.compact import survey as spark_survey
from logyard.spark_jobs.segments.files import SegmentFile, of_directory
from tests.benchmarks.harness import HEADING, MEGABYTE, Row

MEGABYTES = 128
KEYS = 20_000_000
TASK_MEGABYTES = 1000.0
BATCH_BYTES = 16 << 10
SEGMENT_BYTES = 64 << 20
KEY_BYTES = 16
KEY_SHARE = 4  # one key to so many records
ROUNDS = 3
NONE, LZ4 = 0, 3
KINDS = (("100 B", 100, NONE), ("100 B lz4", 100, LZ4), ("1 KiB", 1024, NONE))
TIMESTAMP_MS = 1_700_000_000_000


def measure(directory: Path, megabytes: int = MEGABYTES, keys: int = KEYS) -> list[Row]:
    """Every row of this file; some minutes, most of them for the keys."""
    rows: list[Row] = []
    for name, value_bytes, codec in KINDS:
        files = write_topic(directory / f"{value_bytes}-{codec}" / "t-0", value_bytes, codec, megabytes * MEGABYTE)
        rows += compact_rows(name, files, directory)
        rows += audit_rows(name, files)
        for file in files:
            os.unlink(file.name)
    return [*rows, *memory_rows(directory, keys)]


# Topics


def write_topic(directory: Path, value_bytes: int, codec: int, size: int, keys: int | None = None) -> list[SegmentFile]:
    """Write closed segments of about `size` raw bytes: `keys` distinct ones in turn, or a quarter as many as there are
    records, at random."""
    directory.mkdir(parents=True)
    count = max(BATCH_BYTES // (value_bytes + KEY_BYTES + 10), 1)
    template, places = _template(count, value_bytes)
    random = np.random.default_rng(1)
    batches = max(size // len(template), 1)
    segment, base = bytearray(), 0
    for number in range(batches):
        offset = number * count
        if keys:
            wanted = np.arange(offset, offset + count) % keys
        else:
            wanted = random.integers(0, max(batches * count // KEY_SHARE, 1), count)
        made = template.copy()
        made[places] = np.stack([wanted, wanted], axis=1).astype(">i8").view(np.uint8).reshape(count, KEY_BYTES)
        segment += _sealed(made.tobytes(), offset, codec)
        if len(segment) >= SEGMENT_BYTES or number == batches - 1:
            (directory / f"{base:020d}.log").write_bytes(segment)
            segment, base = bytearray(), offset + count
    files = of_directory(str(directory))
    ends = [*(f.base_offset for f in files[1:]), batches * count]
    return [replace(f, active=False, last_offset=end - 1) for f, end in zip(files, ends, strict=True)]


def _template(count: int, value_bytes: int) -> tuple[Any, Any]:
    """The bytes of a batch, half of each value random, and where the bytes of its keys are."""
    values = [os.urandom(value_bytes // 2).ljust(value_bytes, b"x") for _ in range(count)]
    records = [Record(n, TIMESTAMP_MS, bytes(KEY_BYTES), value) for n, value in enumerate(values)]
    template = np.frombuffer(bytes(batch.build(records)), np.uint8)
    chunk = Chunk(0, template, np.zeros((1, k.HEADER_COLUMNS), np.int64))
    k.read_headers(template, chunk.headers)
    ((part, _),) = opened_parts(chunk)
    return template, walk(part)[:, k.KEY_AT][:, None] + np.arange(KEY_BYTES)


def _sealed(made: bytes, offset: int, codec: int) -> bytes:
    """A batch at its offset, packed and with its checksum."""
    out = bytearray(made[: k.HEADER_SIZE])
    out += compression.compress(codec, made[k.HEADER_SIZE :]) if codec else made[k.HEADER_SIZE :]
    out[0:8] = offset.to_bytes(8, "big")
    out[8:12] = (len(out) - 12).to_bytes(4, "big")
    out[21:23] = codec.to_bytes(2, "big")
    out[17:21] = crc32c(memoryview(out)[21:]).to_bytes(4, "big")
    return bytes(out)


# Jobs' work beside bare work


def compact_rows(name: str, files: list[SegmentFile], aside: Path) -> list[Row]:
    """Pass 1 finds the last offset of each key; pass 2 writes what stays and syncs it."""
    size = sum(f.size for f in files)
    made: list[Decision] = []

    def first_pass() -> None:
        made[:] = [spark_survey.survey_segments(files, survey_of(files), KeyTable())]

    def second_pass() -> None:
        rewrite(files, made[0], aside)

    first, second = least(first_pass), least(second_pass)
    bare_first = least(partial(bare, files, opens=True))
    bare_second = bare_first + least(partial(write_again, files, aside))
    return [
        rate(f"COMPACT {name}, pass 1", size, first, bare_first),
        rate(f"COMPACT {name}, pass 2, synced", size, second, bare_second),
        rate(f"COMPACT {name}, both", size, first + second, bare_first + bare_second),
    ]


def audit_rows(name: str, files: list[SegmentFile]) -> list[Row]:
    """Header mode (`--shallow`), and deep."""
    size = sum(f.size for f in files)
    rows = []
    for depth, deep in (("headers and checksums", False), ("every record", True)):
        took = least(partial(audit, files, deep=deep))
        rows.append(rate(f"AUDIT {name}, {depth}", size, took, least(partial(bare, files, opens=deep))))
    return rows


def survey_of(files: list[SegmentFile]) -> Survey:
    return Survey("t", 0, 0, files[0].base_offset, files[-1].last_offset + 1, TIMESTAMP_MS, 0, 0)


def rewrite(files: list[SegmentFile], decision: Decision, aside: Path) -> None:
    rewriter = compacting.Rewriter(decision, str(aside))
    for group in compacting.plan_groups(files, decision, {"segment.bytes": 1 << 30}):
        part = rewriter.rewrite(group)
        if part is not None:
            os.unlink(part.path)


def audit(files: list[SegmentFile], *, deep: bool) -> None:
    for file in files:
        # Without its indexes, which nobody wrote.
        auditor = SegmentAuditor(SegmentAudit(replace(file, active=True), deep, (), False, TIMESTAMP_MS))
        auditor.run()
        if auditor.findings:
            raise RuntimeError(f"the benchmark's own topic is damaged: {auditor.findings[0]}")


def bare(files: list[SegmentFile], *, opens: bool) -> None:
    """Read the files, check every batch's checksum and, where asked, decompress it: nothing else."""
    for file in files:
        for chunk in read_chunks(file.open()):
            assert isinstance(chunk, Chunk)
            view = memoryview(chunk.data)
            for at, length, attributes in chunk.headers[:, [k.POSITION, k.LENGTH, k.ATTRIBUTES]].tolist():
                crc32c(view[at + 21 : at + length])
                if opens and attributes & 7:
                    compression.decompress(attributes & 7, view[at + k.HEADER_SIZE : at + length])


def write_again(files: list[SegmentFile], aside: Path) -> None:
    """Write a quarter of the bytes and sync them: about what stays where keys are a quarter of the records."""
    path = aside / "bare"
    with path.open("wb", buffering=0) as target:
        for file in files:
            wanted = file.size // KEY_SHARE
            for at in range(0, wanted, CHUNK_BYTES):
                target.write(memoryview(file.open().read(at, min(CHUNK_BYTES, wanted - at))))
        os.fsync(target.fileno())
    path.unlink()


def rate(what: str, size: int, seconds: float, bare_seconds: float) -> Row:
    return Row(what, size / seconds / MEGABYTE, "MB/s", ceiling=size / bare_seconds / MEGABYTE)


def least(work: Callable[[], object]) -> float:
    """Seconds of the best of some rounds, after one to warm up: neighbours only ever add."""
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


# Memory


def memory_rows(directory: Path, keys: int) -> list[Row]:
    """Resident memory of a process that does one pass over so many keys, each of them once."""
    files = write_topic(directory / "keys" / "t-0", 8, NONE, keys * (KEY_BYTES + 8 + 9), keys)
    decided = directory / "decision"
    rows = []
    for name, work in (("pass 1", _decide), ("pass 2", _rewrite)):
        text = f"COMPACT, {keys / 1e6:g} M keys, {name}, resident at most"
        rows.append(Row(text, _in_a_process(work, files, decided), "MB", TASK_MEGABYTES))
    return rows


def _in_a_process(work: Callable[..., None], files: list[SegmentFile], decided: Path) -> float:
    """The most memory (MB) that a fresh process took for it."""
    context = multiprocessing.get_context("spawn")
    told = context.Value("d", 0.0)
    process = context.Process(target=_told, args=(work, files, decided, told))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{work.__name__} ended with status {process.exitcode}")
    return float(told.value)


def _told(work: Callable[..., None], files: list[SegmentFile], decided: Path, told: Any) -> None:
    work(files, decided)
    status = Path("/proc/self/status").read_text()
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    told.value = peak_kib * 1024 / MEGABYTE


def _decide(files: list[SegmentFile], decided: Path) -> None:
    decision = spark_survey.survey_segments(files, survey_of(files), KeyTable())
    decided.write_bytes(decision.encode())


def _rewrite(files: list[SegmentFile], decided: Path) -> None:
    rewrite(files, Decision.decode(decided.read_bytes()), decided.parent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--keys", type=int, default=KEYS)
    options = parser.parse_args()
    print(HEADING)
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        for row in measure(Path(directory), options.megabytes, options.keys):
            print(row.text(), flush=True)


if __name__ == "__main__":
    main()
