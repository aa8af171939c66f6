"""Random logs of message formats v0, v1 and v2 mixed: all compactions compared with a plain model."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.compiled.key_table import KeyTable
from logyard.spark_jobs.compact import rewrite, shuffle
from logyard.spark_jobs.compact import survey as spark_survey
from logyard.spark_jobs.segments.files import SegmentFile, of_directory
from tests.properties.test_compaction_model import groups_by_size
from tests.support.batches import Batch
from tests.support.old_logs import AnyBatch, OldBatch, random_old_log, read_any, seen, sizes
from tests.support.whole_segments import rewrite_group, survey_segments

NOW = 1_700_000_000_000


def kept(log: Sequence[AnyBatch], survey: Survey) -> list[int]:
    """The offsets that stay: the last of each key except expired tombstones, and everything above the range."""
    last: dict[bytes, int] = {}
    gone: set[int] = set()
    above: set[int] = set()
    for b in log:
        for r in b.records:
            if b.base >= survey.range_end:
                above.add(r.offset)
            elif r.key is not None:
                last[r.key] = r.offset
                old = isinstance(b, OldBatch) and any(first <= r.offset <= end for first, end in survey.expired)
                if r.value is None and old and r.offset < survey.tombstone_cutoff:
                    gone.add(r.offset)
    return sorted((set(last.values()) - gone) | above)


def write(directory: Path, segments: Sequence[Sequence[AnyBatch]]) -> list[SegmentFile]:
    directory.mkdir(parents=True)
    for segment in segments:
        (directory / f"{segment[0].base:020d}.log").write_bytes(b"".join(b.encode() for b in segment))
    found = of_directory(str(directory))
    return [replace(f, active=False, last_offset=s[-1].last) for f, s in zip(found, segments, strict=True)]


def compacted(files: list[SegmentFile], decision: Decision, directory: Path, limit: int) -> list[bytes]:
    rewriter = rewrite.Rewriter(decision, str(directory))
    out = []
    for group in rewrite.plan_groups(files, decision, {"segment.bytes": limit}):
        part = rewriter.rewrite(group)
        path = Path(part.path if part else group[0].name)
        out.append(path.read_bytes())
        if part:
            assert part.records == len(read_any(out[-1]))
            assert part.last_offset == sizes(out[-1])[-1][1] == group[-1].last_offset
    return out


@pytest.mark.parametrize("seed", range(40))
def test_all_ways_keep_what_the_model_keeps(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = random_old_log(rng, rng.randrange(3, 50))
    segments: list[list[AnyBatch]] = [[]]
    for b in log:
        if segments[-1] and rng.random() < 0.2:
            segments.append([])
        segments[-1].append(b)
    end = rng.choice([s[0].base for s in segments[1:]] + [log[-1].last + 1])
    spans = [(s[0].base, s[-1].last) for s in segments]
    expired = [span for span in spans if rng.random() < 0.5]
    cutoff = rng.choice([0, end // 2, end])

    def survey() -> Survey:
        return Survey("t", 0, 3, log[0].base, end, NOW, 1000, cutoff, expired=expired)

    files = write(tmp_path / "t-0", segments)
    buffers = [memoryview(Path(f.name).read_bytes()) for f in files]
    plain = survey_segments(buffers, survey())
    table = KeyTable()
    fast = spark_survey.survey_segments(files, survey(), table)
    assert fast == plain
    pieces = [piece for f in files for piece in shuffle.hash_segment(f, survey(), b"s" * 16, 3)]
    buckets = [shuffle.merge_bucket((p for n, p in pieces if n == bucket), b"s" * 16) for bucket in range(3)]
    assert shuffle.decide(shuffle.survey_in_order(files, survey()), buckets) == plain

    limit = rng.choice([200, 10**6])
    touched = [f for f in files if f.base_offset < end]
    parts = compacted(files, plain, tmp_path, limit)
    if not parts:
        return
    tally = Tally()
    groups = groups_by_size([memoryview(Path(f.name).read_bytes()) for f in touched], limit)
    by_the_rules = [b"".join(bytes(p) for p in rewrite_group(group, plain, tally)) for group in groups]
    assert parts == by_the_rules
    records = [r for part in parts for r in read_any(part)]
    before = {r.offset: r for r in seen(log)}
    wanted = [o for o in kept(log, survey()) if o < end]
    assert [r.offset for r in records] == wanted
    assert [(r.key, r.value, r.timestamp) for r in records] == [
        (before[o].key, before[o].value, before[o].timestamp) for o in wanted
    ]
    kinds = {b.last: (2 if isinstance(b, Batch) else b.magic, b.codec) for b in log}
    for magic, last, codec in sizes(b"".join(parts)):
        if last in kinds and codec:
            assert kinds[last] == (magic, codec)
