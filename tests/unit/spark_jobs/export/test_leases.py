"""Exports of live brokers whose leases are lost meanwhile: taken again where that is safe, said where it is not."""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.export import job, leaders, options
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.leaders import LeaseLost
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata
from logyard.spark_jobs.segments import splits
from logyard.spark_jobs.segments.splits import Range, Split
from tests.support.batches import Batch, Rec, batch
from tests.support.here_workers import HereWorkers
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition, write_segment


def batches(first: int, count: int) -> list[Batch]:
    return [batch([Rec(i, b"k", b"%d" % i, 1000 + i)]) for i in range(first, first + count)]


class Yard:
    """Two brokers that have t-0 (five segments of ten records); the first leads."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.target, self.leader = root / "export", 1
        log = [batches(at, 10) for at in range(0, 50, 10)]
        self.brokers = {}
        for number in (1, 2):
            replica = FakeReplica(write_partition(root / str(number), "t-0", log), number == 1, isr=(1, 2))
            self.brokers[number] = stack.enter_context(FakeBroker(number, {("t", 0): replica}, hidden=True))
        self.looks = 0
        self.second = 0
        self.deleted = False

    def lead_second(self, root: Path) -> None:
        """A second partition, which broker 2 alone has."""
        directory = write_partition(root / "second", "t-1", [batches(0, 5)])
        self.brokers[2].replicas["t", 1] = FakeReplica(directory, True, isr=(2,))
        self.second = 2

    def add_second(self, firsts: range) -> None:
        """More segments of the second partition, of five records each."""
        for first in firsts:
            write_segment(self.brokers[2].replicas["t", 1].directory, batches(first, 5))

    def replica(self, broker: int) -> FakeReplica:
        return self.brokers[broker].replicas["t", 0]

    def connect(self, _arguments: Any) -> Cluster:
        self.looks += 1
        places = {"t": {0: PartitionMetadata(self.leader, (1, 2), (1, 2))}}
        if self.deleted:
            del places["t"][0]
        if self.second:
            places["t"][1] = PartitionMetadata(self.second, (self.second,), (self.second,))
        return Cluster(
            Metadata("fake", (1, 2), places),
            {n: BrokerHttp(n, broker.address, broker.token) for n, broker in self.brokers.items()},
        )

    def lead(self, broker: int, epoch: int, first: int = 50) -> None:
        """Another is elected; leases on the former leader are gone with its process."""
        self.leader = broker
        for number in self.brokers:
            replica = self.replica(number)
            replica.is_leader, replica.leader_epoch = number == broker, epoch
            replica.epochs = ((0, 0), (epoch, first))
        self.brokers[3 - broker].expire()

    def run(self, trouble: Callable[[int], None], *, after: bool = False) -> dict[str, Any]:
        """Export; `trouble` is called with the number of the piece before (or `after`) its files are written."""

        class Troubled(HereWorkers):
            pieces = 0

            def each(self, what: str, *rest: Any) -> list[Any]:
                self.pieces += 1
                if not after:
                    trouble(self.pieces)
                answers = super().each(what, *rest)
                if after:
                    trouble(self.pieces)
                return answers

        parser = argparse.ArgumentParser()
        clusters.add_arguments(parser)
        options.add_arguments(parser)
        words = ["--topic", "t", "--destination", str(self.target), "--target-file-mib", "0"]
        given = parser.parse_args([*words, "--commit-mib", "1", "--split-mib", "100"])
        summary = job.export_of(given, Troubled()).all()
        told: dict[str, Any] = json.loads(json.dumps(summary))
        return told

    def offsets(self) -> list[int]:
        paths = self.target.glob("data/**/*.parquet")
        return sorted(o for path in paths for o in pq.ParquetFile(path).read().column("offset").to_pylist())


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    monkeypatch.setattr(job, "MEBIBYTE", 100)
    monkeypatch.setattr(leaders, "PAUSE_S", 0.0)
    monkeypatch.setattr(leaders, "ELECTION_S", 0.5)
    with ExitStack() as stack:
        made = Yard(tmp_path, stack)
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", made.connect)
        yield made
        assert not any(lease["state"] == "active" for b in made.brokers.values() for lease in b.leases.values())


@pytest.mark.parametrize("after", [False, True], ids=["while it is read", "before it is committed"])
def test_a_lease_that_expired_is_taken_again(after: bool, yard: Yard) -> None:
    def expire(piece: int) -> None:
        if piece in (2, 4):
            yard.brokers[1].expire()

    said = yard.run(expire, after=after)
    assert (said["topics_failed"], said["rows"], said["versions"]) == ({}, 50, 5)
    assert yard.offsets() == list(range(50))
    assert yard.looks == 3
    assert not list(yard.target.glob("_staging/*"))


def test_what_came_since_is_left_to_the_next_run(yard: Yard) -> None:
    def expire(piece: int) -> None:
        if piece == 2:
            write_segment(yard.replica(1).directory, batches(50, 10))
            yard.brokers[1].expire()

    assert yard.run(expire)["offsets"]["t-0"]["end"] == 50
    assert yard.offsets() == list(range(50))


def test_another_leads_meanwhile(yard: Yard) -> None:
    def fail_over(piece: int) -> None:
        if piece == 3:
            yard.lead(2, epoch=1)
            yard.replica(2).high_watermark = 15  # it lags: nothing for a while, then all of it

    yard.run(fail_over)
    assert yard.offsets() == list(range(20))
    yard.replica(2).high_watermark = None
    assert yard.run(lambda _piece: None)["offsets"]["t-0"] == {"start": 20, "end": 50, "rows": 30}
    assert yard.offsets() == list(range(50))


def test_a_leader_that_lost_what_was_exported_is_not_gone_on_with(yard: Yard) -> None:
    def unclean(piece: int) -> None:
        if piece == 3:
            yard.lead(2, epoch=1, first=15)

    with pytest.raises(ExportRefused, match="t-0: it was exported up to 20, and from 15 on the log has lost"):
        yard.run(unclean)
    assert yard.offsets() == list(range(20))


def test_a_lease_lost_again_and_again_ends_it_in_one_line(yard: Yard) -> None:
    def expire(piece: int) -> None:
        if piece > 2:
            yard.brokers[1].expire()

    with pytest.raises(LeaseLost, match=r"t-0: its lease was lost 4 times in a row: .*lease_ended"):
        yard.run(expire)
    assert yard.offsets() == list(range(20)), "what was committed stays"


def test_a_broker_that_is_gone_without_a_successor_is_named(yard: Yard) -> None:
    def gone(piece: int) -> None:
        if piece == 2:
            yard.brokers[1].__exit__()
            yard.brokers[1].leases.clear()

    with pytest.raises(JobFailed, match="t-0: no lease on its leader: broker 1 at http"):
        yard.run(gone)
    assert yard.offsets() == list(range(10))


def test_one_partition_that_cannot_be_leased_again_is_given_up_alone(yard: Yard, tmp_path: Path) -> None:
    yard.lead_second(tmp_path)

    def gone(piece: int) -> None:
        if piece == 1:
            yard.brokers[1].__exit__()
            yard.brokers[1].leases.clear()

    said = yard.run(gone)
    assert (list(said["topics_failed"]), said["rows"]) == (["t"], 5)
    assert list(said["failed"]) == ["t-0"]
    assert "no lease on its leader: broker 1" in said["failed"]["t-0"]
    assert yard.offsets() == list(range(5))


@pytest.mark.parametrize("others", [False, True])
def test_a_partition_whose_topic_is_deleted_meanwhile_is_given_up_alone(
    others: bool, yard: Yard, tmp_path: Path
) -> None:
    if others:
        yard.lead_second(tmp_path)

    def delete(piece: int) -> None:
        if piece == 1:
            yard.deleted = True
            yard.brokers[1].expire()

    if not others:
        with pytest.raises(JobFailed, match="t-0: the cluster's metadata does not name it"):
            yard.run(delete)
        return
    said = yard.run(delete)
    assert (said["rows"], list(said["failed"])) == (5, ["t-0"])
    assert yard.offsets() == list(range(5))


def test_other_failures_are_not_taken_for_lost_leases(yard: Yard) -> None:
    def odd(piece: int) -> None:
        if piece == 2:
            raise RuntimeError("the disk")

    with pytest.raises(RuntimeError, match="the disk"):
        yard.run(odd)
    assert yard.looks == 1


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions that are planned, each time."""
    found: list[str] = []
    plain = splits.plan_splits

    def counting(span: Range, **words: Any) -> Iterator[Split]:
        found.append(str(span.replica.tp))
        return plain(span, **words)

    monkeypatch.setattr(splits, "plan_splits", counting)
    return found


def test_only_the_partition_whose_lease_is_lost_is_planned_anew(yard: Yard, tmp_path: Path, planned: list[str]) -> None:
    yard.lead_second(tmp_path)
    yard.add_second(range(5, 60, 5))

    def expire(piece: int) -> None:
        if piece == 3:
            yard.brokers[2].expire()

    said = yard.run(expire)
    assert (said["topics_failed"], said["rows"]) == ({}, 110)
    assert yard.offsets() == sorted([*range(50), *range(60)])
    assert sorted(planned) == ["t-0", "t-1", "t-1"]


def test_a_lease_of_what_is_exported_already_is_not_missed(yard: Yard, tmp_path: Path, planned: list[str]) -> None:
    yard.lead_second(tmp_path)

    def expire(piece: int) -> None:
        if piece == 6:  # t-0 is done
            yard.brokers[1].expire()

    said = yard.run(expire)
    assert (said["topics_failed"], said["rows"], yard.looks) == ({}, 55, 1)
    assert sorted(planned) == ["t-0", "t-1"]


def test_a_topic_made_again_while_it_is_leased_is_given_up(yard: Yard, tmp_path: Path) -> None:
    """One partition is the former topic's: its offset, under the new topic's id, would leave rows of that out."""
    yard.lead_second(tmp_path)
    yard.brokers[2].replicas["t", 1].topic_id = "BBBBBBBBBBBBBBBBBBBBBQ"
    with pytest.raises(ExportRefused, match="topic t was deleted and created again while it was leased"):
        yard.run(lambda _piece: None)
    assert yard.offsets() == []


def test_a_topic_made_again_meanwhile_is_not_gone_on_with(yard: Yard, tmp_path: Path) -> None:
    yard.lead_second(tmp_path)

    def make_again(piece: int) -> None:
        if piece == 1:
            yard.replica(1).topic_id = "AAAAAAAAAAAAAAAAAAAAAg"
            yard.brokers[1].expire()

    said = yard.run(make_again)
    assert list(said["failed"]) == ["t-0"]
    assert "topic t was deleted and created again while it was exported" in said["failed"]["t-0"]
    assert yard.offsets() == list(range(5))


@pytest.mark.parametrize("seed", range(8))
def test_leases_lost_at_random_cost_no_row_and_bring_none_twice(
    seed: int, yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While splits are planned, read or about to be committed; a plan reads indexes, so a lost lease breaks it off."""
    rng = random.Random(seed)
    yard.lead_second(tmp_path)
    yard.add_second(range(5, 60, 5))
    monkeypatch.setattr(leaders, "ATTEMPTS", 1000)
    plain = splits.plan_splits
    left = 25

    def expire(chance: float) -> None:
        nonlocal left
        if left and rng.random() < chance:
            left -= 1
            yard.brokers[rng.choice((1, 2))].expire()

    def troubled(span: Range, **words: Any) -> Iterator[Split]:
        assert span.replica.lease is not None
        for split in plain(span, **words):
            expire(0.1)
            split.segment.open().read(0, 1)
            yield split

    monkeypatch.setattr(splits, "plan_splits", troubled)
    said = yard.run(lambda _piece: expire(0.4), after=bool(seed % 2))
    assert (said["topics_failed"], said["rows"], left < 25) == ({}, 110, True)
    assert yard.offsets() == sorted([*range(50), *range(60)])
