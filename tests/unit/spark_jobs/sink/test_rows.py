"""Arrow batches as records, their digest, and the columns that are refused."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.sink.errors import CannotWrite
from logyard.spark_jobs.sink.rows import Rows, add, check_schema, digest, rows_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
AT = datetime(2026, 11, 22, 12, 0, 0, 123456, tzinfo=UTC)


def test_all_columns_of_a_batch() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array(["é", None], pa.string()),
            "key": pa.array([b"k", None], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None], HEADERS),
            "topic": pa.array(["a", "b"]),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array([AT, None], pa.timestamp("us", tz="UTC")),
        }
    )
    rows = rows_of(batch)
    assert (rows.keys, rows.values) == ([b"k", None], ["é".encode(), None])
    assert (rows.topics, rows.partitions) == (["a", "b"], [3, None])
    assert rows.headers == [[("h", b"1"), ("n", None)], None]
    assert rows.timestamps_ms == [int(AT.timestamp() * 1000), None]
    assert len(rows) == 2


def test_a_value_is_enough() -> None:
    rows = rows_of(pa.record_batch({"value": pa.array([b"v"], pa.binary())}))
    assert rows == Rows(keys=[None], values=[b"v"])


def test_a_time_that_kafka_does_not_have() -> None:
    batch = pa.record_batch({"value": ["v"], "timestamp": pa.array([-1], pa.timestamp("us", tz="UTC"))})
    with pytest.raises(CannotWrite, match="before 1970"):
        rows_of(batch)


def test_the_digest_knows_records_and_not_their_order_or_batches() -> None:
    keys, values = [b"a", b"b", None, b""], [b"1", None, b"3", b"4"]
    whole = digest(Rows(keys, values))
    assert whole == digest(Rows(keys[::-1], values[::-1]))
    assert whole == add(digest(Rows(keys[:1], values[:1])), digest(Rows(keys[1:], values[1:])))
    assert digest(Rows([], [])) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Rows([b"ab"], [b"c"]), Rows([b"a"], [b"bc"])),
        (Rows([None], [b"v"]), Rows([b""], [b"v"])),
        (Rows([b"k"], [None]), Rows([b"k"], [b""])),
        (Rows([b"k"], [b"v"]), Rows([b"k"], [b"v"], partitions=[1])),
        (Rows([b"k"], [b"v"], topics=["a"]), Rows([b"k"], [b"v"], topics=["b"])),
        (Rows([b"k"], [b"v"], headers=[[("h", b"1")]]), Rows([b"k"], [b"v"], headers=[[("h", b"2")]])),
        (Rows([b"k"], [b"v"], timestamps_ms=[1]), Rows([b"k"], [b"v"], timestamps_ms=[2])),
        (Rows([b"k"], [b"v"]), Rows([b"k"] * 2, [b"v"] * 2)),
    ],
)
def test_the_digest_tells_records_apart(one: Rows, other: Rows) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    ("fields", "topic", "text"),
    [
        (
            [("value", "string"), ("offset", "bigint")],
            "t",
            "column 'offset' cannot be written: select among key, value",
        ),
        ([("value", "int")], "t", "column value is int: string or binary is expected"),
        ([("key", "string")], "t", "there is no column value"),
        ([("value", "string"), ("partition", "bigint")], "t", "column partition is bigint: int is expected"),
        ([("value", "string"), ("headers", "map<string,string>")], "t", "column headers is map"),
        ([("value", "string")], None, "topic: give the option or a column of that name"),
    ],
)
def test_columns_that_cannot_be_written(fields: list[tuple[str, str]], topic: str | None, text: str) -> None:
    with pytest.raises(BadOption) as refused:
        check_schema(fields, topic)
    assert text in str(refused.value)


def test_columns_that_can_be_written() -> None:
    every: list[Any] = [
        ("key", "binary"),
        ("value", "string"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("topic", "string"),
        ("partition", "int"),
        ("timestamp", "timestamp"),
    ]
    check_schema(every, None)
    check_schema([("value", "binary")], "t")


def test_the_digest_is_the_one_that_earlier_releases_have_committed() -> None:
    """A write that began before an update is compared after it."""
    plain = Rows(keys=[b"k", None], values=[None, b"v"])
    full = Rows(keys=[b"k", None, b""], values=[b"v", b"w", None], topics=["t", None, "u"])
    assert digest(plain) == 294791990744992451607245149844044233655
    assert digest(full) == 84701108733040315379244244216116943756
