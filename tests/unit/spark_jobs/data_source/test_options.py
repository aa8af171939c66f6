"""What the options of the source mean, and how bad ones are refused."""

import pytest

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.data_source.options import EARLIEST, LATEST, BadOption, Edge, parse
from logyard.spark_jobs.data_source.stream import LogyardStreamReader

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_what_is_read() -> None:
    assert parse({"subscribe": "t, u"}).names(()) == ["t", "u"]
    pattern = parse({"subscribePattern": "fl.*|__.*"})
    assert pattern.names(["flights", "other", "flown", "__consumer_offsets"]) == ["flights", "flown"]
    assert pattern.wants(TopicPartition("flights", 3))
    assert not pattern.wants(T0)
    assigned = parse({"assign": '{"t": [1], "u": [0]}'})
    assert assigned.names(()) == ["t", "u"]
    assert [tp for tp in (T0, T1, U0) if assigned.wants(tp)] == [T1, U0]
    assert all(parse({"path": "/data"}).wants(tp) for tp in (T0, T1, U0))


def test_where_it_begins_and_ends() -> None:
    plain = parse({"subscribe": "t"})
    assert (plain.starting.of(T0), plain.ending.of(T0)) == (Edge(EARLIEST), Edge(LATEST))
    single = parse({"subscribe": "t", "STARTINGOFFSETS": '{"t": {"1": 5}}', "endingOffsets": "earliest"})
    assert (single.starting.of(T0), single.starting.of(T1)) == (Edge(EARLIEST), Edge(5))
    assert single.ending.of(T0) == Edge(EARLIEST)
    timed = parse({"subscribe": "t", "startingTimestamp": "17", "endingOffsetsByTimestamp": '{"t": {"0": 99}}'})
    assert timed.starting.of(T1) == Edge(timestamp_ms=17)
    assert (timed.ending.of(T0), timed.ending.of(T1)) == (Edge(timestamp_ms=99), Edge(LATEST))


def test_the_rest() -> None:
    plain = parse({"subscribe": "t"})
    assert (plain.committed_only, plain.fail_on_data_loss, plain.max_offsets) == (True, True, None)
    assert plain.split_bytes == 64 * 1024 * 1024
    other = parse({"subscribe": "t", "isolationLevel": "READ_UNCOMMITTED", "failOnDataLoss": "false", "splitMib": "8"})
    assert (other.committed_only, other.fail_on_data_loss, other.split_bytes) == (False, False, 8 * 1024 * 1024)
    assert parse({"subscribe": "t", "maxOffsetsPerTrigger": "500"}).max_offsets == 500
    assert parse({"subscribe": "t", "startingOffsetsByTimestampStrategy": "latest"}).latest_where_none
    assert "secret" not in repr(parse({"subscribe": "t", "tokens": "secret"}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "subscribe, subscribePattern or assign"),
        ({"subscribe": "t", "assign": "{}"}, "subscribe and assign: give one"),
        ({"subscribe": " , "}, "subscribe ' , ': it names no topic"),
        ({"assign": "{}", "path": "/data"}, "assign '{}': it names no topic"),
        ({"subscribePattern": "("}, "subscribePattern '\\('"),
        ({"assign": "[1]"}, "assign: JSON"),
        ({"subscribe": "t", "splitMib": "0"}, "splitMib '0'"),
        ({"subscribe": "t", "splitMib": "many"}, "splitMib 'many'"),
        ({"subscribe": "t", "startingTimestamp": "-4"}, "startingTimestamp '-4'"),
        ({"subscribe": "t", "endingOffsetsByTimestamp": "latest"}, "endingOffsetsByTimestamp: JSON"),
        ({"subscribe": "t", "endingOffsets": "{"}, "endingOffsets: earliest, latest or JSON"),
        ({"subscribe": "t", "failOnDataLoss": "perhaps"}, "true or false"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        parse(options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_an_end_is_refused_by_a_stream(name: str) -> None:
    """As by Spark's Kafka source: the stream would go on after it without a word."""
    value = "1005" if name == "endingTimestamp" else '{"t": {"0": 5, "1": 5}}'
    with pytest.raises(BadOption, match=f"{name}: a stream has no end"):
        LogyardStreamReader(["offset"], {"subscribe": "t", name: value})
