"""Micro-batches: where they begin and end, what is read, and what counts as loss."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.leases import BrokerHttp
from logyard.spark_jobs.metadata import Metadata, Place
from logyard.spark_jobs.source_options import BadOption
from logyard.spark_jobs.source_stream import LogyardStreamReader, offset_of, positions
from tests.support.batches import Batch, Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

ALL = ReadAllAvailable()
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def batches(first: int, count: int) -> list[Batch]:
    return [batch([Rec(i, b"k", b"%d" % i, 1000 + i)]) for i in range(first, first + count)]


def read(reader: LogyardStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    found = [row for p in reader.partitions(start, end) for b in reader.read(p) for row in b.to_pylist()]
    return [(row["partition"], row["offset"]) for row in found]


def at(reader: LogyardStreamReader, **nexts: int) -> dict[str, Any]:
    return offset_of({TopicPartition("t", int(p[1:])): (ID, n) for p, n in nexts.items()})


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """One broker that leads t-0 (offsets 0 to 19) and t-1 (0 to 4)."""
    zero = write_partition(tmp_path, "t-0", [batches(0, 10), batches(10, 10)])
    one = write_partition(tmp_path, "t-1", [batches(0, 5)])
    replicas = {("t", 0): FakeReplica(zero, True, isr=(1,)), ("t", 1): FakeReplica(one, True, isr=(1,))}
    with ExitStack() as stack:
        broker = stack.enter_context(FakeBroker(1, replicas, hidden=True))
        places = {0: Place(1, (1,), (1,)), 1: Place(1, (1,), (1,))}
        http = {1: BrokerHttp(1, broker.address, broker.token)}
        cluster = Cluster(Metadata("fake", (1,), {"t": places}), http)
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: cluster)
        yield broker


def stream(**options: str) -> LogyardStreamReader:
    return LogyardStreamReader(["partition", "offset"], {"subscribe": "t", **options})


def test_offsets_go_there_and_back() -> None:
    ends = {T1: ("x", 4), T0: ("x", 7), TopicPartition("a-b", 0): (None, 0)}
    assert positions(offset_of(ends)) == ends
    assert list(offset_of(ends)["topics"]) == ["a-b", "t"]


def test_everything_once_under_leases_that_end(brokers: FakeBroker) -> None:
    reader = stream()
    start = reader.initialOffset()
    assert start == at(reader, p0=0, p1=0)
    end = reader.latestOffset(start, ALL)
    assert end == at(reader, p0=20, p1=5) == reader.reportLatestOffset()
    assert read(reader, start, end) == [(0, n) for n in range(20)] + [(1, n) for n in range(5)]
    states = [lease["state"] for lease in brokers.leases.values()]
    assert states.count("active") == 2
    reader.commit(end)
    assert all(lease["state"] == "aborted" for lease in brokers.leases.values())
    asked = len(brokers.requests)
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []
    assert not any(r.startswith("POST /leases") for r in brokers.requests[asked:]), "looking takes no lease"


def test_only_what_moved_is_leased(brokers: FakeBroker) -> None:
    reader = stream()
    assert read(reader, at(reader, p0=17, p1=5), at(reader, p0=20, p1=5)) == [(0, 17), (0, 18), (0, 19)]
    assert [lease["partition"] for lease in brokers.leases.values()] == [0]


def test_a_limit_is_shared_and_everything_comes_in_the_end(brokers: FakeBroker) -> None:
    reader = stream(maxOffsetsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    position, rows, rounds = reader.initialOffset(), [], 0
    while (following := reader.latestOffset(position, limit)) != position:
        taken = read(reader, position, following)
        assert 0 < len(taken) <= 11
        rows += taken
        position, rounds = following, rounds + 1
    assert sorted(rows) == [(0, n) for n in range(20)] + [(1, n) for n in range(5)]
    assert rounds == 3


def test_available_now_stops_where_it_began_to(brokers: FakeBroker) -> None:
    reader = stream()
    brokers.replicas["t", 0].high_watermark = 12
    reader.prepareForTriggerAvailableNow()
    brokers.replicas["t", 0].high_watermark = None
    assert reader.latestOffset(reader.initialOffset(), ALL) == at(reader, p0=12, p1=5)


def test_a_new_partition_begins_at_its_start(brokers: FakeBroker) -> None:
    reader = stream()
    end = reader.latestOffset(at(reader, p0=20), ALL)
    assert read(reader, at(reader, p0=20), end) == [(1, n) for n in range(5)]


def test_a_leader_that_is_away_is_waited_for(brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = stream()
    del brokers.replicas["t", 0]
    assert reader.latestOffset(at(reader, p0=3, p1=0), ALL) == at(reader, p0=3, p1=5)


def test_where_it_begins(brokers: FakeBroker) -> None:
    reader = stream(startingOffsets="latest")
    assert reader.initialOffset() == at(reader, p0=20, p1=5)
    timed = stream(startingTimestamp="1003")
    assert timed.initialOffset() == at(timed, p0=3, p1=3)
    with pytest.raises(BadOption, match=r"t-1: no record is as new as 1010"):
        stream(startingTimestamp="1010").initialOffset()
    late = stream(startingTimestamp="1010", startingOffsetsByTimestampStrategy="latest")
    assert late.initialOffset() == at(late, p0=10, p1=5)


def test_loss_is_an_error_unless_allowed(brokers: FakeBroker) -> None:
    reader = stream()
    with pytest.raises(BadOption, match="offsets 0 to 30 were asked for, 0 to 20 are there"):
        reader.partitions(at(reader, p0=0), at(reader, p0=30))
    other = offset_of({T0: ("another", 15)})
    with pytest.raises(BadOption, match="topic t was deleted and made again"):
        reader.partitions(other, at(reader, p0=20))
    careless = stream(failOnDataLoss="false")
    assert len(read(careless, other, at(reader, p0=20))) == 20
    assert read(careless, at(reader, p0=18), at(reader, p0=30)) == [(0, 18), (0, 19)]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_streams_it_and_goes_on_from_its_checkpoint(tmp_path: Path, spark: Any) -> None:
    from logyard.spark_jobs import source

    source.register(spark)
    root = tmp_path / "data"
    write_partition(root, "t-0", [batches(0, 10), batches(10, 10)])

    def run() -> None:
        frame = spark.readStream.format("logyard").option("subscribe", "t").load(str(root)).select("offset", "value")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert query.exception() is None

    def offsets() -> list[int]:
        return sorted(row["offset"] for row in spark.read.parquet(str(tmp_path / "out")).collect())

    run()
    assert offsets() == list(range(20))
    write_partition(tmp_path / "more", "t-0", [batches(0, 10), batches(10, 10), batches(20, 7)])
    root.rename(tmp_path / "before")
    (tmp_path / "more").rename(root)
    run()
    assert offsets() == list(range(27))
