"""Micro-batches: where they begin and end, what is read, and what counts as loss."""

import pickle
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.data_source.positions import Position, offset_of, positions
from logyard.spark_jobs.data_source.stream import LogyardStreamReader
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata
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
    """Offsets of records of epoch 0."""
    return offset_of({TopicPartition("t", int(p[1:])): Position(ID, n, 0 if n else -1) for p, n in nexts.items()})


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """One broker that leads t-0 (offsets 0 to 19) and t-1 (0 to 4)."""
    zero = write_partition(tmp_path, "t-0", [batches(0, 10), batches(10, 10)])
    one = write_partition(tmp_path, "t-1", [batches(0, 5)])
    replicas = {("t", 0): FakeReplica(zero, True, isr=(1,)), ("t", 1): FakeReplica(one, True, isr=(1,))}
    with ExitStack() as stack:
        broker = stack.enter_context(FakeBroker(1, replicas, hidden=True))
        places = {0: PartitionMetadata(1, (1,), (1,)), 1: PartitionMetadata(1, (1,), (1,))}
        http = {1: BrokerHttp(1, broker.address, broker.token)}
        cluster = Cluster(Metadata("fake", (1,), {"t": places}), http)
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: cluster)
        yield broker


def stream(**options: str) -> LogyardStreamReader:
    return LogyardStreamReader(["partition", "offset"], {"subscribe": "t", **options})


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


def test_a_limit_counts_only_offsets_that_are_there(brokers: FakeBroker) -> None:
    """Else a stream that stood still for a week goes through all that retention has deleted, batch by empty batch."""
    reader = stream(maxOffsetsPerTrigger="4", failOnDataLoss="false")
    brokers.replicas["t", 0].log_start = 10
    end = reader.latestOffset(at(reader, p0=0, p1=5), reader.getDefaultReadLimit())
    assert read(reader, at(reader, p0=0, p1=5), end) == [(0, n) for n in range(10, 14)]


def test_available_now_stops_where_it_began_to(brokers: FakeBroker) -> None:
    reader = stream()
    brokers.replicas["t", 0].high_watermark = 12
    reader.prepareForTriggerAvailableNow()
    brokers.replicas["t", 0].high_watermark = None
    assert reader.latestOffset(reader.initialOffset(), ALL) == at(reader, p0=12, p1=5)


def test_available_now_does_not_end_well_without_a_partition(brokers: FakeBroker) -> None:
    """A broker that is away for a moment when such a query looks would cost it all rows of the partition."""
    zero, reader = brokers.replicas.pop(("t", 0)), stream()
    with pytest.raises(JobFailed, match="t-0: its leader does not answer"):
        reader.prepareForTriggerAvailableNow()
    brokers.replicas["t", 0] = zero
    reader.prepareForTriggerAvailableNow()
    del brokers.replicas["t", 0]
    with pytest.raises(JobFailed, match="t-0: its leader is away, and offsets below 20 are to be read"):
        reader.latestOffset(at(reader, p0=10, p1=0), ALL)
    assert reader.latestOffset(at(reader, p0=20, p1=0), ALL) == at(reader, p0=20, p1=5), "it is read already"


def test_a_new_partition_begins_at_its_start(brokers: FakeBroker) -> None:
    reader = stream()
    end = reader.latestOffset(at(reader, p0=20), ALL)
    assert read(reader, at(reader, p0=20), end) == [(1, n) for n in range(5)]


def test_what_a_new_partition_lost_before_it_was_read_is_said(brokers: FakeBroker) -> None:
    """As by Spark's Kafka source: a partition that was added since begins at 0, whatever is left of it."""
    brokers.replicas["t", 1].log_start = 2
    known = at(stream(), p0=20)
    end = stream().latestOffset(known, ALL)
    with pytest.raises(BadOption, match="t-1: it was added since, and its offsets below 2 were deleted"):
        stream().partitions(known, end)
    assert not any(lease["state"] == "active" for lease in brokers.leases.values())
    assert read(stream(failOnDataLoss="false"), known, end) == [(1, 2), (1, 3), (1, 4)]


def test_a_leader_that_is_away_is_waited_for(brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = stream()
    del brokers.replicas["t", 0]
    assert reader.latestOffset(at(reader, p0=3, p1=0), ALL) == at(reader, p0=3, p1=5)


def test_what_is_waited_for_is_told_once(brokers: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Else a query stands still without a word as soon as its token, or a right, is no longer good."""
    reader, start = stream(), at(stream(), p0=3, p1=0)

    def said() -> list[str]:
        assert reader.latestOffset(start, ALL) in (start, at(reader, p0=20, p1=5))
        return capsys.readouterr().err.splitlines()

    assert said() == []
    good, brokers.token = brokers.token, "another"
    assert said() == ["logyard: the stream waits for t-0: broker 1 refused (unauthorized): no"]
    assert said() == []
    brokers.token = good
    assert said() == []
    brokers.token = "another"
    assert len(said()) == 1, "and each time anew"
    with pytest.raises(JobFailed, match=r"t-0: its leader does not answer, .* \(t-0: broker 1 refused \(unauthorized"):
        reader.prepareForTriggerAvailableNow()


def test_where_it_begins(brokers: FakeBroker) -> None:
    reader = stream(startingOffsets="latest")
    assert reader.initialOffset() == at(reader, p0=20, p1=5)
    timed = stream(startingTimestamp="1003")
    assert timed.initialOffset() == at(timed, p0=3, p1=3)
    with pytest.raises(BadOption, match=r"t-1: no record is as new as 1010"):
        stream(startingTimestamp="1010").initialOffset()
    late = stream(startingTimestamp="1010", startingOffsetsByTimestampStrategy="latest")
    assert late.initialOffset() == at(late, p0=10, p1=5)


def test_a_beginning_for_a_partition_that_is_not_read_is_an_error(brokers: FakeBroker) -> None:
    with pytest.raises(BadOption, match="startingOffsets: t-7 is none of the partitions that are read"):
        stream(startingOffsets='{"t": {"0": 3, "7": 5}}').initialOffset()


def test_loss_is_an_error_unless_allowed(brokers: FakeBroker) -> None:
    reader = stream()
    with pytest.raises(BadOption, match="offsets 0 to 30 were asked for, 0 to 20 are there"):
        reader.partitions(at(reader, p0=0), at(reader, p0=30))
    other = offset_of({T0: Position("another", 15)})
    with pytest.raises(BadOption, match="topic t was deleted and created again"):
        reader.partitions(other, at(reader, p0=20))
    careless = stream(failOnDataLoss="false")
    assert len(read(careless, other, at(reader, p0=20))) == 20
    assert read(careless, at(reader, p0=18), at(reader, p0=30)) == [(0, 18), (0, 19)]


# --- right after a failover, and after worse


def test_a_leader_whose_watermark_lags_takes_nothing_back(brokers: FakeBroker) -> None:
    reader = stream()
    leader = brokers.replicas["t", 0]
    leader.high_watermark = 15
    read_to = reader.latestOffset(at(reader, p0=0, p1=0), ALL)
    rows = read(reader, at(reader, p0=0, p1=0), read_to)
    leader.leader_epoch, leader.epochs, leader.high_watermark = 1, ((0, 0), (1, 20)), 12
    assert reader.latestOffset(read_to, ALL) == read_to
    assert reader.latestOffset(read_to, ReadMaxRows(3)) == read_to
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(read_to, ALL) == read_to
    leader.high_watermark = None
    following = stream().latestOffset(read_to, ALL)
    rows += read(reader, read_to, following)
    assert sorted(rows) == [(0, n) for n in range(20)] + [(1, n) for n in range(5)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_planned_before_a_failover_is_read_whole_after_it(fail: str, brokers: FakeBroker) -> None:
    reader = stream(failOnDataLoss=fail)
    leader = brokers.replicas["t", 0]
    planned = reader.latestOffset(at(reader, p0=0, p1=5), ALL)
    leader.leader_epoch, leader.epochs, leader.high_watermark = 1, ((0, 0), (1, 20)), 12
    assert read(reader, at(reader, p0=0, p1=5), planned) == [(0, n) for n in range(20)]


@pytest.mark.parametrize("epochs", [((0, 0), (2, 10)), ((0, 0),)], ids=["written anew", "shorter"])
def test_records_lost_after_they_were_read_are_said(epochs: Any, brokers: FakeBroker) -> None:
    """An unclean election: the log was cut, and may have grown again."""
    brokers.replicas["t", 0].epochs, brokers.replicas["t", 0].leader_epoch = epochs, 2
    known = at(stream(), p0=15 if len(epochs) > 1 else 25, p1=5)
    with pytest.raises(BadOption, match=r"t-0: what was read from offset (10|20) to (14|24) is no longer in the log"):
        stream().latestOffset(known, ALL)
    with pytest.raises(BadOption, match=r"t-0: what was read from offset (10|20)"):
        stream().partitions(known, at(stream(), p0=30))
    with pytest.raises(BadOption, match=r"t-0: offsets 0 to (15|25) were asked for, 0 to (10|20) are there"):
        stream().partitions(at(stream(), p0=0), known)
    careless = stream(failOnDataLoss="false")
    following = careless.latestOffset(known, ALL)
    assert positions(following)[T0].offset == (20 if len(epochs) > 1 else 25), "and never back"


def test_a_limit_begins_anew_with_a_topic_that_was_made_again(brokers: FakeBroker) -> None:
    reader = stream(failOnDataLoss="false", maxOffsetsPerTrigger="10")
    before = offset_of({T0: Position("another", 1000, 7), T1: Position("another", 5, 0)})
    following = reader.latestOffset(before, ReadMaxRows(10))
    assert following == at(reader, p0=8, p1=2)
    assert read(reader, before, following) == [(0, n) for n in range(8)] + [(1, 0), (1, 1)]


def test_of_a_topic_made_again_a_partition_that_is_away_is_read_from_its_start(brokers: FakeBroker) -> None:
    reader = stream(failOnDataLoss="false")
    away = brokers.replicas.pop(("t", 1))
    following = reader.latestOffset(offset_of({T0: Position("another", 9, 1), T1: Position("another", 4, 0)}), ALL)
    assert following == at(reader, p0=20)
    brokers.replicas["t", 1] = away
    assert read(reader, following, reader.latestOffset(following, ALL)) == [(1, n) for n in range(5)]


@pytest.mark.parametrize("fields", [{"is_leader": False}, {"leader_epoch": 1, "epochs": ((0, 0), (1, 5))}])
def test_a_broker_that_no_longer_leads_is_not_believed(fields: dict[str, Any], brokers: FakeBroker) -> None:
    for name, value in fields.items():
        setattr(brokers.replicas["t", 0], name, value)
    known = offset_of({T0: Position(ID, 25, 2), T1: Position(ID, 5, 0)})
    assert stream().latestOffset(known, ALL) == known
    with pytest.raises(JobFailed, match="t-0: broker 1 no longer leads it"):
        stream().partitions(known, offset_of({T0: Position(ID, 30, 2)}))
    assert not any(lease["state"] == "active" for lease in brokers.leases.values())


def test_a_checkpoint_without_epochs_is_gone_on_from(brokers: FakeBroker) -> None:
    """Of earlier versions; where nothing came it stays word for word, or Spark would plan empty batches for ever."""
    old = {"topics": {"t": {"id": ID, "next": {"0": 20, "1": 3}}}}
    following = stream().latestOffset(old, ALL)
    assert following == {"topics": {"t": {"id": ID, "next": {"0": 20, "1": 5}, "epochs": {"1": 0}}}}
    assert stream().latestOffset(following, ALL) == following


def test_a_beginning_that_does_not_exist_is_named(brokers: FakeBroker) -> None:
    with pytest.raises(BadOption, match="t-0: offset 99 was asked for, 0 to 20 are there"):
        stream(startingOffsets='{"t": {"0": 99}}').initialOffset()


def test_leases_are_kept_by_the_process_that_plans_whoever_reads(
    brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    quickly = "logyard.spark_jobs.data_source.stream.Heartbeats"
    monkeypatch.setattr(quickly, lambda leases, ttl_ms: Heartbeats(leases, 30))  # a beat each hundredth
    reader = stream()
    planned = reader.partitions(at(reader, p0=0, p1=0), at(reader, p0=20, p1=5))

    def beats() -> int:
        return sum(request.endswith("/heartbeat") for request in brokers.requests)

    deadline = time.monotonic() + 20
    while beats() < 20:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    task = pickle.loads(pickle.dumps(reader))
    assert sum(rows.num_rows for one in planned for rows in task.read(one)) == 25
    reader.commit(at(reader, p0=20, p1=5))
    reader.partitions(at(reader, p0=19, p1=5), at(reader, p0=20, p1=5))
    known = beats()
    while beats() < known + 5:
        assert time.monotonic() < deadline, "and those of the next micro-batch"
        time.sleep(0.01)
    reader.stop()
    known = beats()
    time.sleep(0.1)
    assert beats() == known
    assert {lease["state"] for lease in brokers.leases.values()} == {"aborted"}


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


def test_a_partition_of_a_directory_waits_until_its_watermark_is_noted(tmp_path: Path) -> None:
    write_partition(tmp_path, "t-0", [batches(0, 10)])
    noted = (tmp_path / "replication-offset-checkpoint").read_text()
    reader = stream(path=str(tmp_path))
    start = reader.initialOffset()
    write_partition(tmp_path, "t-1", [batches(0, 5)])
    whole = (tmp_path / "replication-offset-checkpoint").read_text()
    (tmp_path / "replication-offset-checkpoint").write_text(noted)
    first = reader.latestOffset(start, ALL)
    assert list(positions(first)) == [T0]
    (tmp_path / "replication-offset-checkpoint").write_text(whole)
    assert positions(reader.latestOffset(first, ALL))[T1].offset == 5


def test_available_now_does_not_end_well_without_a_directorys_watermark(tmp_path: Path) -> None:
    write_partition(tmp_path, "t-0", [batches(0, 10)])
    noted = (tmp_path / "replication-offset-checkpoint").read_text()
    write_partition(tmp_path, "t-1", [batches(0, 5)])
    whole = (tmp_path / "replication-offset-checkpoint").read_text()
    (tmp_path / "replication-offset-checkpoint").write_text(noted)
    reader = stream(path=str(tmp_path))
    with pytest.raises(BadOption, match="t-1: its high watermark is not known"):
        reader.prepareForTriggerAvailableNow()
    (tmp_path / "replication-offset-checkpoint").write_text(whole)
    reader.prepareForTriggerAvailableNow()
    (tmp_path / "replication-offset-checkpoint").write_text(noted)
    start = offset_of({T0: Position(None, 0), T1: Position(None, 2)})
    with pytest.raises(JobFailed, match="t-1: its high watermark is not known, and offsets below 5 are to be read"):
        reader.latestOffset(start, ALL)


def test_a_directory_that_was_read_and_is_gone_is_data_loss(tmp_path: Path) -> None:
    write_partition(tmp_path, "t-0", [batches(0, 10)])
    write_partition(tmp_path, "t-1", [batches(0, 5)])
    start = stream(path=str(tmp_path), startingOffsets="latest").initialOffset()
    (tmp_path / "t-1").rename(tmp_path / "t-1.copy")
    with pytest.raises(BadOption, match="t-1: it was read up to offset 5, and has no directory any more"):
        stream(path=str(tmp_path)).latestOffset(start, ALL)
    assert stream(path=str(tmp_path), failOnDataLoss="false").latestOffset(start, ALL) == start


def test_a_leader_that_does_not_answer_is_waited_for_once(brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def away(broker: BrokerHttp, topic: str, partition: int) -> dict[str, Any]:
        asked.append(partition)
        raise LeaseError("unreachable", "timed out")

    monkeypatch.setattr("logyard.spark_jobs.data_source.stream.partition_status", away)
    reader = stream()
    assert reader.latestOffset(at(reader, p0=3, p1=4), ALL) == at(reader, p0=3, p1=4)
    assert asked == [0]
