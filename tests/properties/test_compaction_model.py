"""Random histories with several successive compactions, compared with a plain model, and the compiled code with the
plain Python."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.compaction.transactions import AbortedTransaction
from tests.support import compaction_model as model
from tests.support.batches import CONTROL, HORIZON, Batch, Seen, read_back
from tests.support.whole_segments import rewrite_group, survey_segments

DELETE_RETENTION_MS = 1000
Clean = Callable[[list[list[Batch]], Callable[[], Survey], int], tuple[Decision, bytes]]


def clean_plainly(
    segments: list[list[Batch]], survey: Callable[[], Survey], segment_bytes: int
) -> tuple[Decision, bytes]:
    buffers = [memoryview(b"".join(b.encode() for b in s)) for s in segments]
    decision = survey_segments(buffers, survey())
    assert Decision.decode(decision.encode()) == decision
    out = b""
    for group in groups_by_size(buffers, segment_bytes):
        tally = Tally()
        part = b"".join(bytes(piece) for piece in rewrite_group(group, decision, tally))
        assert tally.records_out == sum(len(s.records) for s in read_back(part))
        out += part
    return decision, out


def groups_by_size(buffers: list[memoryview], limit: int) -> list[list[memoryview]]:
    groups: list[list[memoryview]] = []
    for buffer in buffers:
        if groups and sum(map(len, groups[-1])) + len(buffer) <= limit:
            groups[-1].append(buffer)
        else:
            groups.append([buffer])
    return groups


def clean_compiled(
    segments: list[list[Batch]], survey: Callable[[], Survey], segment_bytes: int, tmp: Path
) -> tuple[Decision, bytes]:
    from logyard.broker.compiled.key_table import KeyTable
    from logyard.spark_jobs.compact import rewrite
    from logyard.spark_jobs.compact import survey as spark_survey
    from logyard.spark_jobs.segments.files import of_directory

    directory = tmp / "t-0"
    directory.mkdir(parents=True)
    for segment in segments:
        (directory / f"{segment[0].base:020d}.log").write_bytes(b"".join(b.encode() for b in segment))
    files = [
        replace(f, active=False, last_offset=s[-1].last)
        for f, s in zip(of_directory(str(directory)), segments, strict=True)
    ]
    decision = spark_survey.survey_segments(files, survey(), KeyTable())
    rewriter = rewrite.Rewriter(decision, str(tmp))
    out = b""
    for group in rewrite.plan_groups(files, decision, {"segment.bytes": segment_bytes}):
        part = rewriter.rewrite(group)
        data = Path(part.path if part else str(directory / f"{group[0].base_offset:020d}.log")).read_bytes()
        out += data
        if part:
            assert (part.size, part.sha256) == (len(data), hashlib.sha256(data).hexdigest())
            assert part.segments == tuple(s.base_offset for s in group)
            assert part.last_offset == group[-1].last_offset
            assert part.records == sum(len(s.records) for s in read_back(data))
    return decision, out


def cut(rng: random.Random, batches: list[Batch]) -> list[list[Batch]]:
    segments: list[list[Batch]] = []
    for batch in batches:
        if not segments or rng.random() < 0.2:
            segments.append([])
        segments[-1].append(batch)
    return segments


def producers_of(rng: random.Random, log: model.Log) -> dict[int, ActiveProducer]:
    if rng.random() < 0.5:
        return {}
    live = {
        b.producer_id: ActiveProducer(b.last, 0) for b in log.batches if b.producer_id >= 0 and not b.flags & CONTROL
    }
    return live | ({7: ActiveProducer(-1, 0)} if rng.random() < 0.3 else {})


def check(log: model.Log, seen: list[Seen], survey: Survey) -> None:
    data, markers = model.kept(log, end=survey.range_end, now_ms=survey.now_ms, cutoff=survey.tombstone_cutoff)
    spent = model.spent_markers(log, survey.range_end)
    before = {r.offset: r for b in log.batches for r in b.records}
    batches = {b.base: b for b in log.batches}
    records = [r for s in seen if not s.is_control for r in s.records]
    assert [r.offset for r in records] == sorted(data)
    assert all(before[r.offset] == r for r in records)
    assert {s.base for s in seen if s.is_control and s.records} == markers
    kept_last = {p.last_offset for p in survey.producers.values()}
    for s in seen:
        old = batches[s.base]
        assert s.crc_ok
        assert s.last == old.last
        if s.records or s.last in kept_last:
            assert (s.producer_id, s.producer_epoch, s.sequence) == (old.producer_id, old.producer_epoch, old.sequence)
        if s.records:
            needs = s.last < survey.range_end and (
                s.base in spent or (not s.is_control and any(r.value is None for r in s.records))
            )
            assert bool(s.attributes & HORIZON) == bool(old.flags & HORIZON or needs)
            if needs and not old.flags & HORIZON:
                assert s.base_timestamp == survey.now_ms + DELETE_RETENTION_MS
    assert kept_last - {-1} <= {s.last for s in seen if s.producer_id >= 0}


def as_batches(seen: list[Seen]) -> list[Batch]:
    return [
        Batch(
            s.base,
            s.last - s.base,
            tuple(s.records),
            s.attributes & 7,
            s.attributes & ~7,
            s.producer_id,
            s.producer_epoch,
            s.sequence,
            0,
            s.base_timestamp,
            s.max_timestamp,
        )
        for s in seen
    ]


def run_history(seed: int, clean: Clean) -> None:
    rng = random.Random(seed)
    log = model.random_log(rng, rng.randrange(1, 60))
    aborted = [AbortedTransaction(*row) for row in log.aborted_index()]
    now_ms = model.START_MS + 10**7
    for turn in range(4):
        bounds = [b.base for b in log.batches] + [log.end]
        bounds = [b for b in bounds if log.open_from is None or b <= log.open_from]
        if not bounds or bounds == [log.batches[0].base]:
            return
        end = max(bounds) if turn else rng.choice(bounds)
        cutoff = rng.choice([0, end]) if turn < 2 else end
        fields = (log.batches[0].base, end, now_ms, DELETE_RETENTION_MS, cutoff, aborted, producers_of(rng, log))
        inside = [b for b in log.batches if b.base < end]
        if not inside:
            continue
        _, out = clean(cut(rng, inside), lambda f=fields: Survey("t", 0, 3, *f), rng.choice([300, 10**6]))  # type: ignore[misc]
        seen = read_back(out + b"".join(b.encode() for b in log.batches if b.base >= end))
        check(log, seen, Survey("t", 0, 3, *fields))
        log = model.after(log, as_batches(seen))
        now_ms += rng.choice([500, 2000])


@pytest.mark.parametrize("block", range(4))
def test_plain_compaction_equals_the_model(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        run_history(seed, clean_plainly)


@pytest.mark.parametrize("block", range(2))
def test_compiled_compaction_equals_the_plain_one_byte_for_byte(block: int, tmp_path: Path) -> None:
    runs = 0

    def both(segments: list[list[Batch]], survey: Callable[[], Survey], segment_bytes: int) -> tuple[Decision, bytes]:
        nonlocal runs
        runs += 1
        plain = clean_plainly(segments, survey, segment_bytes)
        assert clean_compiled(segments, survey, segment_bytes, tmp_path / str(runs)) == plain
        return plain

    for seed in range(1000 + block * 40, 1040 + block * 40):
        run_history(seed, both)
    assert runs > 40
