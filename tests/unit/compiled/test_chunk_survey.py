"""Which batches a survey sees one by one, and what that costs for each chunk."""

from array import array

import pytest

from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.compiled.chunk_survey import wanted_batches
from tests.support.batches import Rec, batch
from tests.support.steps import Counted
from tests.unit.spark_jobs.segments.test_chunks import chunk_of


def test_a_chunk_is_not_compared_with_every_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may have hundreds of thousands, and a chunk for each 4 MiB."""
    producers = {n: ActiveProducer(Counted(n), 0) for n in range(1000)}
    survey = Survey("t", 0, 0, 0, 20, -1, 0, 0, producers=producers)
    log = [batch([Rec(n, b"k", b"v")], producer_id=n % 3 - 1, sequence=0) for n in range(10)]
    chunk = chunk_of(b"".join(one.encode() for one in log))
    monkeypatch.setattr(Counted, "uses", 0)
    assert wanted_batches(chunk, survey).tolist() == [True] * 10
    assert Counted.uses == 0


def test_the_last_batch_of_each_producer_stays() -> None:
    producers = {5: ActiveProducer(2, 0), 6: ActiveProducer(3, 0), 7: ActiveProducer(4, 0)}
    survey = Survey("t", 0, 0, 0, 20, -1, 0, 0, producers=producers)
    log = [batch([Rec(n, b"k", b"v")], producer_id=5 + n % 2 if n < 4 else -1, sequence=n) for n in range(6)]
    assert wanted_batches(chunk_of(b"".join(one.encode() for one in log)), survey).tolist() == [True] * 6
    assert list(survey.decide_offsets(OffsetSet(array("q"), is_sorted=True)).kept_batches.values) == [2, 3]
