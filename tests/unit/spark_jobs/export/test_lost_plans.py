"""Pieces of an export whose plans break off, as a lost lease does it: no split is lost, and none comes twice."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.export.pieces import Piece, Pieces
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from logyard.spark_jobs.segments.splits import Range, Split
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Replica:
    root = tmp_path_factory.mktemp("pieces")
    return of_partition_directory(str(write_partition(root, "t-0", [[batch([Rec(0, b"k", b"v")])]])))


class Losses:
    """Partitions whose splits are planned under leases that are lost at random, and an export of them by pieces."""

    def __init__(self, rng: random.Random, replica: Replica) -> None:
        self.rng = rng
        self.spans = {}
        for number in range(rng.randrange(1, 6)):
            start = rng.randrange(50)
            span = Range(replace(replica, partition=number), start, start + rng.choice([0, rng.randrange(120)]))
            self.spans[span.replica.tp] = span
        self.lost: set[TopicPartition] = set()
        self.plans: list[TopicPartition] = []
        self.losses = self.in_plans = 0
        self.read: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in self.spans}
        self.at = {tp: span.start for tp, span in self.spans.items()}

    def splits_of(self, span: Range) -> Iterator[Split]:
        tp = span.replica.tp
        self.plans.append(tp)
        segment = SegmentFile("t", tp.partition, 0, 0, 10**6, {}, "")
        at = span.start
        while at < span.end:
            if self.rng.random() < 0.1:
                self.lose(tp)
            if tp in self.lost:
                self.in_plans += 1
                raise LeaseError("lease_ended", f"{tp}: it is expired")
            end = min((at // 7 + 1) * 7, span.end)
            if at // 7 % 5 or at % 7:  # there are holes in the log
                yield Split(segment, 0, self.rng.randrange(1, 100), at, end, (), True, (), "hash")
            at = end

    def lose(self, tp: TopicPartition) -> None:
        self.losses += tp not in self.lost
        self.lost.add(tp)

    def commit(self, piece: Piece) -> None:
        for span in piece.ranges:
            tp = span.replica.tp
            assert span.start == self.at[tp], "nothing is left out, and nothing comes twice"
            self.at[tp] = span.end
            mine = [(s.start, s.end) for s in piece.splits if s.segment.partition == tp.partition]
            assert all(span.start <= start and end <= span.end for start, end in mine)
            self.read[tp] += mine

    def retake(self, pieces: Pieces) -> None:
        pieces.take_back()
        for tp in sorted(self.lost):
            if pieces.needs(tp):
                rest = pieces.rest(tp)
                assert (rest.start, rest.end) == (self.at[tp], self.spans[tp].end)
                pieces.replan(rest)
        self.lost.clear()

    def run(self) -> None:
        pieces = Pieces(list(self.spans.values()), self.splits_of)
        while pieces.offsets_left:
            try:
                piece = pieces.take(self.rng.choice([1, 60, 300]))
            except LeaseError:
                self.retake(pieces)
                continue
            assert piece is not None
            if self.rng.random() < 0.2:
                self.lose(self.rng.choice(list(self.spans)))
            if any(pieces.needs(tp) for tp in self.lost):
                self.retake(pieces)
                continue
            self.commit(piece)
        assert pieces.take(1) is None


@pytest.mark.parametrize("seed", range(200))
def test_with_leases_lost_at_any_moment_every_offset_is_planned_once(seed: int, replica: Replica) -> None:
    losses = Losses(random.Random(seed), replica)
    losses.run()
    for tp, span in losses.spans.items():
        wanted = [n for n in range(span.start, span.end) if n // 7 % 5 or n // 7 * 7 < span.start]
        assert [n for start, end in losses.read[tp] for n in range(start, end)] == wanted
    assert losses.at == {tp: span.end for tp, span in losses.spans.items()}
    # A partition is planned once, and again only where its own lease was lost.
    assert len(losses.plans) <= len(losses.spans) + losses.losses + losses.in_plans


def test_a_plan_that_breaks_off_in_the_middle_of_a_piece_goes_on_there(replica: Replica) -> None:
    """A generator that has raised says that it is at its end: the rest of its range must not count as exported."""
    spans = [Range(replace(replica, partition=n), 0, 40) for n in range(2)]
    broken = iter([True, False])

    def splits_of(span: Range) -> Iterator[Split]:
        segment = SegmentFile("t", span.replica.partition, 0, 0, 10**6, {}, "")
        for at in range(span.start, 40, 10):
            if (span.replica.partition, at) == (1, 20) and next(broken):
                raise LeaseError("lease_ended", "it is expired")
            yield Split(segment, 0, 10, at, at + 10, (), True, (), "hash")

    pieces = Pieces(spans, splits_of)
    with pytest.raises(LeaseError):
        pieces.take(1000)
    assert pieces.offsets_left == 80
    piece = pieces.take(1000)
    assert piece is not None
    for number in range(2):
        mine = [(s.start, s.end) for s in piece.splits if s.segment.partition == number]
        assert mine == [(at, at + 10) for at in range(0, 40, 10)]
    assert [(span.start, span.end) for span in piece.ranges] == [(0, 40)] * 2
