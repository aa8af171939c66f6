import json
import random
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from logyard.spark_jobs import source
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.data_source.batch import LogyardReader, PushingReader
from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.data_source.rows import SCHEMA
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata
from tests.support import compaction_model as model
from tests.support.batches import CONTROL, Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

PLAIN = [
    [batch([Rec(2 * i, b"k", b"v", 1000 + i), Rec(2 * i + 1, None, b"w", 1000 + i)]) for i in range(j, j + 5)]
    for j in (0, 5)
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_partition(tmp_path, "t-0", PLAIN)
    write_partition(tmp_path, "u-0", PLAIN[:1])
    return tmp_path


def rows(columns: list[str], **options: str) -> list[dict[str, Any]]:
    reader = LogyardReader(columns, options)
    batches = [b for p in reader.partitions() for b in reader.read(p)]
    assert all(b.schema == pa.schema([SCHEMA.field(c) for c in columns]) for b in batches)
    return [row for b in batches for row in b.to_pylist()]


@pytest.mark.parametrize("text", [None, "0\n1\nu 0 10\n", "garbage"])
def test_a_directory_that_does_not_tell_what_is_committed_is_not_an_empty_one(root: Path, text: str | None) -> None:
    noted = root / "replication-offset-checkpoint"
    noted.unlink() if text is None else noted.write_text(text)
    with pytest.raises(BadOption, match=r"t-0: its high watermark is not known .replication-offset-checkpoint: "):
        rows(["offset"], path=str(root), subscribe="t")
    for log in (root / "t-0").glob("*.log"):
        log.write_bytes(b"")
    assert rows(["offset"], path=str(root), subscribe="t") == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", '{"t": {"0": 1}, "T": {"0": 1}}'),
        ("endingOffsets", '{"T": {"0": 1}}'),
        ("startingOffsetsByTimestamp", '{"T": {"0": 1}}'),
        ("endingOffsetsByTimestamp", '{"t": {"0": 1}, "T": {"0": 1}}'),
    ],
)
def test_an_edge_for_a_partition_that_is_not_read_is_an_error(root: Path, option: str, value: str) -> None:
    with pytest.raises(BadOption, match=f"{option}: T-0 is none of the partitions that are read"):
        rows(["offset"], path=str(root), subscribe="t", **{option: value})


def test_every_column_of_a_directory(root: Path) -> None:
    found = rows(SCHEMA.names, path=str(root), subscribe="t")
    assert [r["offset"] for r in found] == list(range(20))
    assert found[3] == {
        "topic": "t",
        "partition": 0,
        "offset": 3,
        "timestamp": found[3]["timestamp"],
        "timestampType": 0,
        "key": None,
        "value": b"w",
        "headers": [],
        "leaderEpoch": 0,
        "producerId": -1,
        "producerEpoch": -1,
        "sequence": -1,
        "isControl": False,
        "isTransactional": False,
    }
    assert found[3]["timestamp"].timestamp() == pytest.approx(1.001)
    assert {r["topic"] for r in rows(["topic"], path=str(root))} == {"t", "u"}


def test_offsets_bound_what_is_read(root: Path) -> None:
    def offsets(**options: str) -> list[int]:
        return [r["offset"] for r in rows(["offset"], path=str(root), subscribe="t", **options)]

    assert offsets(startingOffsets='{"t": {"0": 7}}', endingOffsets='{"t": {"0": 12}}') == [7, 8, 9, 10, 11]
    assert offsets(startingOffsets='{"t": {"0": -1}}') == []
    assert offsets(startingOffsets="latest") == []
    assert offsets(endingOffsets='{"t": {"0": -2}}') == []
    with pytest.raises(BadOption, match="offsets 0 to 99 were asked for, 0 to 20 are there"):
        offsets(endingOffsets='{"t": {"0": 99}}')
    assert offsets(endingOffsets='{"t": {"0": 99}}', failOnDataLoss="false") == list(range(20))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t", "isolationLevel": "dirty"}, "isolationLevel 'dirty'"),
        ({}, "subscribe"),
        ({"subscribe": "t", "path": "ROOT", "startingOffsets": "soon"}, "startingOffsets"),
        ({"subscribe": "t", "path": "ROOT", "startingOffsets": "[1]"}, "startingOffsets"),
    ],
)
def test_bad_options_are_named(root: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        rows(["offset"], **{k: str(root) if v == "ROOT" else v for k, v in options.items()})
    with pytest.raises(BadOption, match="'ofset' does not exist"):
        LogyardReader(["ofset"], {})


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        ({"subscribe": "t,v"}, "v"),
        ({"assign": '{"t": [0, 3]}'}, "t-3"),
        ({"assign": '{"t": [0], "v": [1]}'}, "v"),
    ],
)
def test_what_is_named_and_not_there_is_no_empty_table(root: Path, options: dict[str, str], lacking: str) -> None:
    with pytest.raises(BadOption, match=f"^{lacking} was asked for and does not exist$"):
        rows(["offset"], path=str(root), **options)


def test_a_pattern_does_not_leave_out_what_the_brokers_have_no_answer_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(Metadata("fake", (1,), {}, missing=("other", "t-later")), {})
    monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: cluster)
    with pytest.raises(BadOption, match="no answer for topic t-later at the moment"):
        rows(["offset"], subscribePattern="t.*")
    assert rows(["offset"], subscribePattern="x.*") == []


def test_a_cluster_is_read_under_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = model.random_log(random.Random(14), 60)
    directory = write_partition(tmp_path, "t-0", [log.batches[:30], log.batches[30:]])
    replica = FakeReplica(directory, True, isr=(1,))
    names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    replica.aborted = [dict(zip(names, row, strict=True)) for row in log.aborted_index()]
    with ExitStack() as stack:
        broker = stack.enter_context(FakeBroker(1, {("t", 0): replica}, hidden=True))
        http = {1: BrokerHttp(1, broker.address, broker.token)}
        cluster = Cluster(Metadata("fake", (1,), {"t": {0: PartitionMetadata(1, (1,), (1,))}}), http)
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: cluster)
        found = rows(["offset", "value"], subscribe="t")
        expected = [
            (r.offset, r.value)
            for b in log.batches
            if not b.flags & CONTROL and log.transactions.get(b.base) not in log.aborted
            for r in b.records
        ]
        assert [(r["offset"], r["value"]) for r in found] == expected
        control = rows(["offset", "isControl"], subscribe="t", includeControlRecords="true")
        markers = [r.offset for b in log.batches if b.flags & CONTROL for r in b.records]
        assert [r["offset"] for r in control if r["isControl"]] == markers != []
        assert [r["offset"] for r in control if not r["isControl"]] == [offset for offset, _ in expected]
        assert any(r.endswith("/heartbeat") for r in broker.requests)
        assert json.dumps([r["offset"] for r in rows(["offset"], subscribe="t", isolationLevel="read_uncommitted")])


def pushed(root: Path, *filters: Filter) -> tuple[list[tuple[str, int]], list[Filter]]:
    """What is planned and read with these filters, and which of them Spark still has to check."""
    reader = PushingReader(["topic", "offset"], {"path": str(root)})
    left = list(reader.pushFilters(list(filters)))
    found = [row for p in reader.partitions() for b in reader.read(p) for row in b.to_pylist()]
    return [(row["topic"], row["offset"]) for row in found], left


def test_filters_are_pruned(root: Path) -> None:
    everything, _ = pushed(root)
    assert len(everything) == 30
    topic, offset = ("topic",), ("offset",)
    assert pushed(root, EqualTo(topic, "u")) == ([("u", n) for n in range(10)], [])
    assert pushed(root, In(topic, ("t",)), GreaterThan(offset, 16)) == ([("t", 17), ("t", 18), ("t", 19)], [])
    bounded = [GreaterThanOrEqual(offset, 4), LessThan(offset, 6), EqualTo(topic, "t")]
    assert pushed(root, *bounded)[0] == [("t", 4), ("t", 5)]
    assert pushed(root, LessThanOrEqual(offset, 0), EqualTo(("partition",), 0))[0] == [("t", 0), ("u", 0)]
    assert pushed(root, EqualTo(offset, 3), EqualTo(offset, 4))[0] == []
    assert pushed(root, EqualTo(("partition",), 7)) == ([], [])
    unknown = [EqualTo(("key",), b"k"), IsNotNull(offset), Not(EqualTo(topic, "t"))]
    assert pushed(root, *unknown) == (everything, unknown)


def test_a_time_rules_out_what_is_older_and_is_checked_again(root: Path) -> None:
    late = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(1.007, UTC))
    found, left = pushed(root, late)
    assert left == [late]
    assert ("t", 9) not in found, "the first segment ends at 1.004"
    # Segments go by the time index, batches by their headers; a batch of this log has one time.
    assert [n for topic, n in found if topic == "t"] == list(range(14, 20))
    for millis in range(999, 1012):
        found, _ = pushed(root, GreaterThan(("timestamp",), datetime.fromtimestamp(millis / 1000, UTC)))
        wanted = {n for n in range(20) if 1000 + n // 2 > millis}
        assert wanted <= {n for topic, n in found if topic == "t"}


def test_a_subset_of_columns_may_be_an_option() -> None:
    assert source.LogyardDataSource({"path": "/x", "columns": "offset, key"}).schema().names == ["offset", "key"]
    with pytest.raises(BadOption, match="'ofset' does not exist"):
        source.LogyardDataSource({"columns": "ofset"}).schema()


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_reads_it(root: Path, spark: Any) -> None:
    source.register(spark)
    frame = spark.read.format("logyard").option("subscribe", "t").load(str(root))
    assert frame.count() == 20
    assert frame.where("offset = 3").select("value", "timestamp", "headers").collect()[0]["value"] == b"w"
    assert frame.where("partition = 0 and offset >= 18 and timestamp > timestamp'1970-01-01'").count() == 2
    narrow = spark.read.format("logyard").schema("offset long, key binary").load(str(root))
    keyless = sorted(row["offset"] for row in narrow.where("key is null").collect())
    assert keyless == sorted([*range(1, 20, 2), *range(1, 10, 2)])
