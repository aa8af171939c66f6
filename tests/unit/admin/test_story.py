"""Lines of brokers' logs become the story of one topic."""

import io
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from logyard.admin import story
from logyard.broker import log_format

LOG_2 = """\
2026-11-21 23:22:58.938191 INFO    [2] elected as controller  event_id=1 cause=0 kind=Started epoch=4
2026-11-21 23:23:43.668461 INFO    [2] topics were created  event_id=7 cause=0 kind=CreateTopics topics=['flights']
2026-11-21 23:23:43.669200 INFO    [2] topics changed  event_id=8 cause=0 kind=TopicsChanged \
new=['flights', 'o'] vanished=[]
2026-11-21 23:23:43.700000 INFO    [2] LeaderAndIsr  event_id=8 controller=2 controller_epoch=4 count=1 \
partitions=['flights-0']
2026-11-21 23:23:50.000000 INFO    [2] topics changed  event_id=9 cause=0 kind=TopicsChanged \
new=['flights-2'] vanished=[]
2026-11-21 23:23:51.000000 WARNING [2] replicas were not moved  event_id=11 cause=10 kind=Answered \
reasons={'flights-0 on 1': 'a = b'}
Traceback (most recent call last):
2026-11-21 23:23:52.000000 INFO    [2] serving  listeners=PLAINTEXT://h:1
""".splitlines()
LOG_1 = """\
2026-11-21 23:23:43.710000 INFO    [1] LeaderAndIsr  event_id=8 controller=2 controller_epoch=4 count=2 \
partitions=['flights-0', 'o-0'] made=['flights-0', 'o-0']
2026-11-21 23:23:43.720000 INFO    [1] UpdateMetadata  event_id=8 controller=2 controller_epoch=4 count=1 \
partitions=['flights-0']
2026-11-21 23:23:48.000000 INFO    [1] UpdateMetadata  event_id=10 controller=2 controller_epoch=4 count=1 \
partitions=['o-0']
2026-11-21 23:23:49.000000 INFO    [1] LeaderAndIsr  event_id=8 controller=0 controller_epoch=5 count=1 \
partitions=['o-0']
2026-11-21 23:23:55.000000 INFO    [1] StopReplica  event_id=20 controller=0 controller_epoch=5 count=1 \
partitions=['flights-0'] deleted=['flights-0']
""".splitlines()


def test_fields_with_blanks_quotes_and_equals() -> None:
    assert story.parse_fields("a=1 b=['x', 'y z'] c='k=v w=1' d={'q': \"it's\"} e=") == {
        "a": "1",
        "b": "['x', 'y z']",
        "c": "'k=v w=1'",
        "d": "{'q': \"it's\"}",
        "e": "",
    }


def test_what_is_no_line_is_passed_over() -> None:
    found = list(story.parse(LOG_2))
    assert len(found) == 7
    assert found[5].level == "WARNING"
    assert found[6].what == "serving"
    assert list(story.parse(["", "Traceback", "2026 x"])) == []


def test_a_line_without_fields() -> None:
    (line,) = story.parse(["2026-11-21 23:23:49.000000 INFO    [1] nothing more to say"])
    assert (line.what, line.fields) == ("nothing more to say", {})


def test_one_change_from_the_request_to_the_disks() -> None:
    found = story.story([*story.parse(LOG_1), *story.parse(LOG_2)], "flights")
    assert [(c.key.controller, c.key.epoch, c.key.event, c.kind) for c in found] == [
        (2, 4, 7, "CreateTopics"),
        (2, 4, 8, "TopicsChanged"),
        (2, 4, 10, ""),  # it caused event 11
        (2, 4, 11, "Answered"),
        (0, 5, 20, ""),
    ]
    assert story.text(found, "flights") == [
        "2026-11-21 23:23:43.668461  event 7 CreateTopics at controller 2 epoch 4",
        "  23:23:43.668461  broker 2: topics were created  topics=['flights']",
        "2026-11-21 23:23:43.669200  event 8 TopicsChanged at controller 2 epoch 4",
        "  23:23:43.669200  broker 2: topics changed  new=['flights', 'o'] vanished=[]",
        "  23:23:43.700000  broker 2: LeaderAndIsr flights-0",
        "  23:23:43.710000  broker 1: LeaderAndIsr flights-0; log created: flights-0",
        "  23:23:43.720000  broker 1: UpdateMetadata flights-0",
        "2026-11-21 23:23:48.000000  event 10 at controller 2 epoch 4",
        "2026-11-21 23:23:51.000000  event 11 Answered at controller 2 epoch 4, caused by event 10",
        "  23:23:51.000000  broker 2: replicas were not moved  reasons={'flights-0 on 1': 'a = b'}",
        "2026-11-21 23:23:55.000000  event 20 at controller 0 epoch 5",
        "  23:23:55.000000  broker 1: StopReplica flights-0; log deleted: flights-0",
    ]
    assert story.as_json(found, "flights")[1]["done"][1]["fields"]["made"] == "['flights-0', 'o-0']"


def test_a_topic_whose_name_ends_like_a_partitions() -> None:
    found = story.story([*story.parse(LOG_1), *story.parse(LOG_2)], "flights-2")
    assert [c.key.event for c in found] == [9]
    assert story.story(story.parse(LOG_2), "none") == []


def test_many_partitions_are_told_as_ranges() -> None:
    old = [f"flights-{n}" for n in [*range(150), 160, *range(200, 260)]]
    lines = [
        "2026-11-21 23:23:42.000000 INFO    [2] elected as controller  event_id=1 cause=0 kind=Started epoch=4",
        "2026-11-21 23:23:43.000000 INFO    [2] partitions were added  event_id=8 cause=0 kind=CreatePartitions "
        f"partitions={[*old, 'o-1']}",
        "2026-11-21 23:23:44.000000 INFO    [1] LeaderAndIsr  event_id=8 controller=2 controller_epoch=4 count=300 "
        "partitions=['flights-0..299', 'o-1..2'] made=['flights-0..9', 'flights-10', 'flights-12']",
    ]
    found = story.story(story.parse(lines), "flights")
    assert story.text(found, "flights")[1:] == [
        "  23:23:43.000000  broker 2: partitions were added  "
        "partitions=[flights-0..149, flights-160, flights-200..259, o-1]",
        "  23:23:44.000000  broker 1: LeaderAndIsr flights-0..299; log created: flights-0..10, flights-12",
    ]
    assert [chapter.key.event for chapter in story.story(story.parse(lines), "o")] == [8]
    assert story.story(story.parse(lines), "flights-0") == []


def said(what: str, **values: Any) -> str:
    """What a broker writes, traceback and all."""
    lines = io.StringIO()
    processors = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False),
        structlog.processors.format_exc_info,
        log_format.line,
    ]
    structlog.wrap_logger(structlog.WriteLogger(lines), processors=processors, broker=7).info(what, **values)  # type: ignore[arg-type]
    return lines.getvalue()


KEYS = st.sampled_from(["topic", "partitions", "made", "reason", "event_id", "cause", "controller", "kind", "epoch"])
# Half of it is what a parser of such lines stumbles over.
TEXTS = st.text() | st.text("'\"\\ =[](){}ab-0.1")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary() | TEXTS.map(ValueError),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner) | st.tuples(inner, inner),
    max_leaves=8,
)


@given(TEXTS, st.dictionaries(KEYS, VALUES), st.booleans())
def test_every_line_that_a_broker_can_write_is_read(what: str, values: dict[str, Any], failed: bool) -> None:
    more = {"exc_info": ValueError(what)} if failed else {}
    found = list(story.parse(said(what, **values, **more).splitlines(keepends=True)))
    assert [(line.level, line.broker) for line in found] == [("INFO", 7)]
    for topic in ("a", "a-0"):
        told = story.story(found, topic)
        story.text(told, topic)
        story.as_json(told, topic)


NAMES = st.text("abc-._019", min_size=1)
PLAIN = st.integers() | NAMES | st.lists(NAMES) | st.sampled_from(["o'neil", 'a"b', "x[0]y", "it's a = b", "k=v w=1 "])


@given(st.dictionaries(KEYS, PLAIN, min_size=1))
def test_fields_are_read_as_they_were_written(values: dict[str, Any]) -> None:
    (line,) = story.parse(said("topics changed", **values).splitlines())
    assert (line.what, dict(line.fields)) == ("topics changed", {k: log_format.shown(v) for k, v in values.items()})


@pytest.mark.parametrize("client", ["'", "[(", "b'x", "a(b"])
def test_a_name_with_half_a_quote_hides_no_field(client: str) -> None:
    (line,) = story.parse([said("LeaderAndIsr", peer=client, controller=1, event_id=3, partitions=["a-0", "a-1"])[:-1]])
    assert dict(line.fields) == {"peer": client, "controller": "1", "event_id": "3", "partitions": "['a-0', 'a-1']"}


def test_numbers_that_are_none_are_passed_over() -> None:
    """Of another version, or of somebody who has written into the file."""
    long = "9" * 5000
    start = "2026-11-21 23:23:43.000000 INFO    [1] LeaderAndIsr"
    lines = [
        f"{start}  event_id={long} controller=1 controller_epoch=1 partitions=['t-0']",
        f"{start}  event_id=1 controller=x controller_epoch=None partitions=['t-{long}', 't-1']",
        f"{start}  event_id=2 cause=None groups={[f't-{long}'] * 10}",
        f"2026-11-21 23:23:43.000000 INFO    [{long}] serving",
    ]
    found = story.story(story.parse(lines), "t")
    assert [(chapter.key.controller, chapter.key.event) for chapter in found] == [(-1, 1)]
    assert story.text(found, "t")[-1].endswith("LeaderAndIsr t-1")
    assert story.story(story.parse(lines), f"t-{long}")


def test_a_line_is_read_in_time_that_grows_with_its_length() -> None:
    (line,) = story.parse(["2026-11-21 23:23:43.000000 INFO    [1] x  " + " ".join(["a='"] + ["b=("] * 50_000)])
    assert set(line.fields) == {"a", "b"}
