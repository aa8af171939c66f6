"""A split whose lease is gone when its task begins, or in its midst."""

import pickle
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs.data_source import split_reader
from logyard.spark_jobs.data_source.split_reader import Changed, SplitReader
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import acquire
from logyard.spark_jobs.segments.replicas import of_leased
from logyard.spark_jobs.segments.splits import Range, Split, plan_splits
from tests.support.batches import Batch, Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

# Two batches fill a chunk.
LARGE = b"v" * 2_500_000


def batches(first: int, count: int, value: bytes = b"v") -> list[Batch]:
    return [batch([Rec(i, b"k%d" % i, value, 1000 + i)]) for i in range(first, first + count)]


class Yard:
    def __init__(self, broker: FakeBroker) -> None:
        self.broker, self.replica = broker, broker.replicas["t", 0]

    def split(self, start: int = 0, end: int = 8, columns: tuple[str, ...] = ("key",), ttl_ms: int = 60_000) -> Split:
        """One split of the first segment, under a lease of its plan."""
        lease = acquire(BrokerHttp(1, self.broker.address, self.broker.token), "t", 0, "plan", "export", ttl_ms)
        span = Range(of_leased(lease), start, end)
        first, *_ = plan_splits(span, committed_only=True, columns=columns)
        return first

    def active(self) -> list[str]:
        return [lease["run_id"] for lease in self.broker.leases.values() if lease["state"] == "active"]


@pytest.fixture(params=[True, False], ids=["over HTTP", "from links"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    directory = write_partition(tmp_path, "t-0", [batches(0, 8, LARGE), batches(8, 4)])
    with ExitStack() as stack:
        replica = FakeReplica(directory, True, isr=(1,))
        yield Yard(stack.enter_context(FakeBroker(1, {("t", 0): replica}, hidden=request.param)))


def keys(found: Iterator[Any]) -> list[bytes]:
    return [key for rows in found for key in rows.column("key").to_pylist()]


def test_a_lease_that_expired_in_the_queue_is_taken_again(yard: Yard) -> None:
    split = yard.split(2, 7)
    yard.broker.expire()
    assert keys(SplitReader(split).rows()) == [b"k%d" % n for n in range(2, 7)]
    assert yard.active() == [], "a task's own lease ends with it"


def test_a_lease_of_the_longest_time_is_taken_again(yard: Yard) -> None:
    """600 s, the data source's default: the links of the first one took some milliseconds more."""
    split = yard.split(2, 7, ttl_ms=600_000)
    yard.broker.expire()
    assert keys(SplitReader(split).rows()) == [b"k%d" % n for n in range(2, 7)]


def test_one_that_is_lost_in_the_midst_goes_on_where_it_was(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_reader, "BEAT_S", 0.0)
    found = SplitReader(yard.split(columns=("value", "key"))).rows()
    rows = [next(found)]
    yard.broker.expire()
    rows += found
    assert rows[0].schema.names == ["value", "key"]
    assert len(rows) > 2
    assert keys(iter(rows)) == [b"k%d" % n for n in range(8)]


def test_a_reader_that_is_left_ends_its_lease(yard: Yard) -> None:
    split = yard.split()
    yard.broker.expire()
    found = SplitReader(split).rows()
    assert isinstance(found, Generator)
    next(found)
    assert len(yard.active()) == 1
    found.close()
    assert yard.active() == []


def test_a_log_that_was_compacted_since_is_read_as_it_is(yard: Yard) -> None:
    """Its segments are cut elsewhere, and records are gone that others replace."""
    split = yard.split(0, 8)
    yard.broker.expire()
    for path in yard.replica.directory.glob("*.log"):
        path.unlink()
    write_partition(yard.replica.directory.parent / "new", "t-0", [batches(1, 1), batches(5, 3), batches(8, 4)])
    for path in (yard.replica.directory.parent / "new" / "t-0").iterdir():
        path.rename(yard.replica.directory / path.name)
    assert keys(SplitReader(split).rows()) == [b"k1", b"k5", b"k6", b"k7"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"topic_id": "BBBBBBBBBBBBBBBBBBBBBQ"}, "the topic was deleted and created again"),
        ({"log_start": 3}, "offsets below 3 were deleted"),
        ({"epochs": ((0, 0), (4, 5))}, "the log has lost its records from 5 on"),
    ],
)
def test_what_changed_is_said_and_not_read(fields: dict[str, Any], said: str, yard: Yard) -> None:
    split = yard.split(2, 7)
    yard.broker.expire()
    for name, value in fields.items():
        setattr(yard.replica, name, value)
    with pytest.raises(Changed, match=rf"t-0: the lease on broker 1 was lost while offsets 2 to 6 waited .*{said}"):
        list(SplitReader(split).rows())
    assert yard.active() == []


def test_it_is_given_up_in_the_end(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    split, real, taken = yard.split(), acquire, []

    def short(*arguments: Any) -> Any:
        taken.append(real(*arguments))
        yard.broker.expire()
        return taken[-1]

    yard.broker.expire()
    monkeypatch.setattr(split_reader, "acquire", short)
    with pytest.raises((LeaseError, FileNotFoundError)):
        list(SplitReader(split).rows())
    assert len(taken) == split_reader.RETAKES


def test_too_many_leases_are_waited_out(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_reader, "PAUSE_S", 0.0)
    split, real, refused = yard.split(), acquire, [1, 2]

    def crowded(*arguments: Any) -> Any:
        if refused:
            refused.pop()
            raise LeaseError("too_many_leases", "more than 32")
        return real(*arguments)

    yard.broker.expire()
    monkeypatch.setattr(split_reader, "acquire", crowded)
    assert len(keys(SplitReader(split).rows())) == 8


def test_a_beat_that_passes_ends_nothing(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_lease: Any) -> None:
        raise LeaseError("unreachable", "no route")

    monkeypatch.setattr("logyard.spark_jobs.leases.client.Lease.heartbeat", away)
    assert len(keys(SplitReader(yard.split()).rows())) == 8


def test_an_error_comes_back_from_a_task() -> None:
    error = pickle.loads(pickle.dumps(Changed("read again")))
    assert (type(error), str(error), error.code) == (Changed, "read again", "changed")


def test_a_directory_has_no_lease_to_take_again(yard: Yard) -> None:
    split = yard.split()
    bare = replace(split, segment=replace(split.segment, lease=None, directory="/nowhere"))
    with pytest.raises(FileNotFoundError):
        list(SplitReader(bare).rows())
