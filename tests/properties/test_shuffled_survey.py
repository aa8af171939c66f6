"""However keys are distributed over tasks and buckets, the decision equals that of a single task."""

import random
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.spark_jobs.compact import shuffle
from logyard.spark_jobs.compact.shuffle import HashedKeys
from logyard.spark_jobs.segments.files import SegmentFile, of_directory
from tests.properties.test_compaction_model import clean_plainly, run_history
from tests.support.batches import Batch, Rec, batch

SEED = bytes(range(16))


def files_of(segments: list[list[Batch]], directory: Path) -> list[SegmentFile]:
    directory.mkdir(parents=True)
    for segment in segments:
        (directory / f"{segment[0].base:020d}.log").write_bytes(b"".join(b.encode() for b in segment))
    found = zip(of_directory(str(directory)), segments, strict=True)
    return [replace(f, active=False, last_offset=s[-1].last) for f, s in found]


def decide(files: list[SegmentFile], survey: Callable[[], Survey], buckets: int, rng: random.Random) -> Decision:
    dealt: dict[int, list[HashedKeys]] = defaultdict(list)
    for file in files:
        for bucket, piece in shuffle.hash_segment(file, survey(), SEED, buckets):
            dealt[bucket].append(piece)
    assert set(dealt) <= set(range(buckets))
    for pieces in dealt.values():
        rng.shuffle(pieces)  # a shuffle promises no order
    merged = [shuffle.merge_bucket(pieces, SEED) for pieces in dealt.values()]
    return shuffle.decide(shuffle.survey_in_order(files, survey()), merged)


@pytest.mark.parametrize("deal_keys", [1, 5, 1 << 19])
def test_the_decision_is_that_of_one_task(deal_keys: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "DEAL_KEYS", deal_keys)
    rng = random.Random(deal_keys)
    runs = 0

    def both(segments: list[list[Batch]], survey: Callable[[], Survey], segment_bytes: int) -> tuple[Decision, bytes]:
        nonlocal runs
        runs += 1
        files = files_of(segments, tmp_path / str(runs) / "t-0")
        alone, out = clean_plainly(segments, survey, segment_bytes)
        together = decide(files, survey, rng.choice([1, 2, 7, 64]), rng)
        assert together.encode() == alone.encode()
        return alone, out

    for seed in range(3000 + deal_keys, 3040 + deal_keys):
        run_history(seed, both)
    assert runs > 40


def test_a_damaged_segment_stops_it_and_is_named(tmp_path: Path) -> None:
    batches = [batch([Rec(0, b"a", b"x")]), batch([Rec(1, b"a", b"y")])]
    files = files_of([batches[:1], batches[1:]], tmp_path / "t-0")
    path = Path(files[1].name)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    def survey() -> Survey:
        return Survey("t", 0, 0, 0, 2, 0, 0, 0)

    damage = f"t-0, segment 1 ({path}): batch at position 0 (offset 1): its checksum"
    with pytest.raises(Exception, match=re.escape(damage)):
        decide(files, survey, 3, random.Random(1))


def test_buckets_hold_what_a_task_may_hold(tmp_path: Path) -> None:
    files = files_of([[batch([Rec(0, b"a", b"x")])]], tmp_path / "t-0")
    assert shuffle.bucket_count(files, 1000, 100) == 13
    assert shuffle.bucket_count(files, 10, 100) == 2
    assert shuffle.bucket_count(files, 10**12, 100) == shuffle.BUCKETS_MAX
