"""Records on the page: what is read, how bytes are shown, what is hidden from whom, who may look, and the audit log."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

import msgspec

from logyard.admin.cluster.fetching import Fetched
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.settings import BadSettings
from logyard.broker.groups import record_format as groups
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.model import TopicPartition
from logyard.broker.records.build import build
from logyard.broker.records.decode import Record
from logyard.broker.transactions import record_format as transactions
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored
from logyard.operators.contents.decoding import SHOWN_CHARS, decode
from logyard.operators.contents.masks import STARS, fields_of, read_rules
from logyard.operators.contents.shown import Search
from logyard.plugins.logyard_ui.cache.worker import Busy
from logyard.plugins.logyard_ui.records import reading
from logyard.plugins.logyard_ui.records.answer import keeping
from logyard.plugins.logyard_ui.records.looks import THREADS, WAITING_MAX, Looks
from logyard.plugins.logyard_ui.records.reading import NEWEST, OFFSET, TIME, Question, Raw, read
from logyard.plugins.logyard_ui.records.words import in_words
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Connections, PageClient, make_app

pytestmark = pytest.mark.airflow

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
GZIP = 1


@pytest.fixture
def filled(cluster: MemoryCluster) -> MemoryCluster:
    """Topic p: partition 0 has offsets 10 to 29 in batches of five, partition 1 has 0 to 4 and a transaction's mark."""
    MemoryClient(cluster).create_topic(NewTopic("p", 2, 3))
    cluster.tick()
    cluster.start_offsets[P0], cluster.end_offsets[P0], cluster.end_offsets[P1] = 10, 30, 6
    cluster.batches[P0] = [_batch(range(first, first + 5), 1000) for first in (10, 15, 20, 25)]
    marker = bytes(build([Record(5, 5, b"\0\0\0\1", b"\0" * 6)], control=True, transactional=True))
    cluster.batches[P1] = [_batch(range(5), 0, compression=GZIP, transactional=True), marker]
    return cluster


def _batch(offsets: range, base_ms: int, **fields: Any) -> bytes:
    return bytes(
        build([Record(o, base_ms + o, b"k%d" % o, b'{"n": %d}' % o, (("h", b"v"),)) for o in offsets], **fields)
    )


def _read(
    cluster: MemoryCluster, *, client: MemoryClient | None = None, **asked: Any
) -> tuple[list[Any], reading.Answer]:
    fields: dict[str, Any] = {"topic": "p", "partitions": (), "start": NEWEST, "at": 0, "limit": 100}
    fields |= asked
    answer = read(
        client or MemoryClient(cluster), Question(**fields), {0: 1, 1: 2}, lambda raw: (raw.partition, raw.offset)
    )
    return answer.found, answer


def test_what_is_asked_for_is_read(filled: MemoryCluster) -> None:
    assert _read(filled, limit=3)[0] == [(0, 29), (0, 28), (0, 27)]  # by time: partition 1 is older
    assert _read(filled, limit=3, partitions=(1,))[0] == [(1, 4), (1, 3), (1, 2)]  # a mark is no record
    assert _read(filled, start=OFFSET, at=12, limit=2, partitions=(0,))[0] == [(0, 12), (0, 13)]
    assert _read(filled, start=OFFSET, at=0, limit=2, partitions=(0,))[0] == [(0, 10), (0, 11)]  # what is left
    found, answer = _read(filled)
    assert (len(found), answer.ended, answer.problems) == (25, "whole", {})
    assert _read(filled, start=TIME, at=5, limit=5)[0] == []  # the twin knows no times: nothing is as late


def test_a_look_ends_when_its_budget_does(filled: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FETCH_BYTES", 1)
    monkeypatch.setattr(reading, "LOOK_BYTES", 1)
    assert (len(_read(filled)[0]), _read(filled)[1].ended) == (5, "bytes")
    monkeypatch.undo()
    monkeypatch.setattr(reading, "LOOK_RECORDS", 3)
    assert _read(filled)[1].ended == "records"
    question = Question("p", (), NEWEST, 0, 100)
    times = iter([0.0, *[99.0] * 9])
    assert read(MemoryClient(filled), question, {0: 1}, lambda raw: raw, clock=lambda: next(times)).ended == "time"
    assert read(MemoryClient(filled), question, {0: 1}, lambda raw: raw, left=lambda: True).ended == "left"


def test_the_newest_are_found_where_compaction_has_left_few(filled: MemoryCluster) -> None:
    filled.end_offsets[P0] = 100_000
    filled.batches[P0] = [_batch(range(10, 40), 0), _batch(range(500, 501), 0), _batch(range(99_999, 100_000), 0)]
    assert _read(filled, limit=4, partitions=(0,))[0] == [(0, 99_999), (0, 500), (0, 39), (0, 38)]
    found, answer = _read(filled, limit=50, partitions=(0,))
    assert (len(found), answer.ended) == (32, "whole")


def test_a_search_goes_back_to_the_start_or_says_that_it_did_not(
    filled: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SEARCHED_FIRST", 8)
    question = Question("p", (0,), NEWEST, 0, 2, searched=True)

    def wanted(raw: Raw) -> Any:
        return raw.offset if raw.offset in (10, 11, 12, 26) else None

    assert read(MemoryClient(filled), question, {0: 1}, wanted).found == [26, 12]
    monkeypatch.setattr(reading, "LOOK_RECORDS", 7)
    short = read(MemoryClient(filled), question, {0: 1}, wanted)
    assert (short.found, short.ended) == ([26], "records")


def test_what_cannot_be_read_is_said_and_ends(filled: MemoryCluster) -> None:
    filled.batches[P0][1] = filled.batches[P0][1][:-3] + b"\xff\xff\xff"
    _, answer = _read(filled)
    assert answer.problems[0].startswith("from offset")
    filled.batches[P0] = []  # the leader has nothing that it could give
    assert _read(filled)[1].problems == {}
    question = Question("p", (0, 7), NEWEST, 0, 5)
    assert read(MemoryClient(filled), question, {0: 1}, lambda raw: raw).problems == {7: "it has no leader now"}


def test_retention_may_move_the_start_meanwhile(filled: MemoryCluster) -> None:
    class Moving(MemoryClient):
        def fetch(self, tp: TopicPartition, leader: int, offset: int, size_max: int) -> Fetched:
            filled.start_offsets[P0] = 20
            return super().fetch(tp, leader, offset, size_max)

    found, answer = _read(filled, client=Moving(filled), start=OFFSET, at=10, limit=2, partitions=(0,))
    assert (found, answer.problems) == ([(0, 20), (0, 21)], {})


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b'{"a": 9007199254740993}', "json", '{\n "a": 9007199254740993\n}'),  # exact: a browser's number is not
        (b"[" * 100_000, "text", "[" * 100_000),
        ("grüß\n".encode(), "text", "grüß\n"),
        (b"", "text", ""),
        (msgspec.msgpack.encode({"a": b"\1", "b": [1]}), "messagepack", '{\n "a": "01",\n "b": [\n  1\n ]\n}'),
        (b"\0\0\0\0\7abc", "schema", "schema 7: 61 62 63"),
        ((42).to_bytes(8, "big"), "bytes", "00 00 00 00 00 00 00 2a (as a number 42)"),
        (b"\xff\xfe\xfd", "bytes", "ff fe fd"),
        (msgspec.msgpack.encode({b"a": 1, b"\xff": 2, 3: 4}), "messagepack", '{\n "a": 1,\n "ff": 2,\n "3": 4\n}'),
        (b"\x81\x92\x01\x02\x03", "messagepack", '{\n "(1, 2)": 3\n}'),
        (b"[" * 41 + b"]" * 41, "text", "[" * 41 + "]" * 41),
        (b'["\\ud800"]', "json", '[\n "\ud800"\n]'),
        (b"\x1b[31m", "bytes", "1b 5b 33 31 6d"),  # no control characters
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes, kind: str, text: str) -> None:
    shown = decode(data)
    assert shown is not None
    assert (shown.kind, shown.text, shown.size) == (kind, text, len(data))
    assert len(shown.as_json()["text"]) <= SHOWN_CHARS


def test_what_is_shown_can_be_sent() -> None:
    keep = keeping("t", None, Search())
    shown = keep(Raw(0, 1, 1, b'["\\udfff"]', b'{"a": "\\ud800"}', (("\ud800", b"v"),), transactional=False))
    text = json.dumps(shown, ensure_ascii=False)
    assert text.encode().decode() == text
    assert shown["value"]["text"] == '{\n "a": "\\ud800"\n}'


def test_a_hostile_structure_costs_what_its_bytes_do() -> None:
    deep = b"[" * 39
    data = deep + b"[]," * 300_000 + b"[]" + b"]" * 39
    shown = decode(data)
    assert shown is not None
    assert len(shown.text) < 2 * len(data)  # indented, it would be fifteen times as long


def test_a_null_is_none_and_a_long_text_is_cut() -> None:
    assert decode(None) is None
    shown = decode(b"x" * (SHOWN_CHARS + 1))
    assert shown is not None
    assert (len(shown.as_json()["text"]), shown.as_json()["cut"]) == (SHOWN_CHARS, True)


def test_internal_topics_are_in_words() -> None:
    key, value = (
        groups.offset_key("g", "t", 3),
        groups.offset_value(OffsetCommit("t", 3, 7, metadata="m", commit_ms=1000)),
    )
    told = in_words("__consumer_offsets", key, value)
    assert told is not None
    assert told[1] is not None
    assert told[0].text == "group g, partition t-3"
    assert told[1].text == "committed offset 7 at 1970-01-01T00:00:01.000+00:00, metadata 'm'"
    assert in_words("__consumer_offsets", key, None) == (told[0], None)
    stored = Stored(5, 1, 60_000, State.ONGOING, frozenset({P0}), 1000, 1000)
    told = in_words("__transaction_state", transactions.key("pay"), transactions.value(stored))
    assert told is not None
    assert told[1] is not None
    assert (told[0].text, told[1].text.split(", partitions")[0]) == (
        "transactional id pay",
        "ongoing, producer 5 (epoch 1), time-out 60000 ms",
    )
    for odd in (None, b"", b"\0\7", b"\0\1\xff"):
        assert in_words("__consumer_offsets", odd, b"\0") is None
    assert in_words("orders", key, value) is None


MASKS = json.dumps([{"topics": "pay.*", "fields": ["card.number", "Email"], "unless": ["Admin"]}])


def test_fields_are_hidden_and_search_does_not_find_them() -> None:
    rules = read_rules(MASKS)
    assert fields_of(rules, "orders", ["op"]) is None
    assert fields_of(rules, "payments", ["ADMIN"]) is None
    hidden = fields_of(rules, "payments", ["op"])
    assert hidden is not None
    value = json.dumps({"card": {"number": "4111", "kind": "x"}, "number": 3, "people": [{"email": "a@b.c"}]}).encode()
    raw = Raw(0, 1, 2, b"secret-key", value, (("email", b"a@b.c"), ("trace", b"7")), False)
    shown = keeping("payments", hidden, Search())(raw)
    assert json.loads(shown["value"]["text"]) == {
        "card": {"number": STARS, "kind": "x"},
        "number": 3,
        "people": [{"email": STARS}],
    }
    assert shown["key"]["kind"] == "hidden"  # no fields can be told in it
    assert [entry[1]["kind"] for entry in shown["headers"]] == ["hidden", "text"]
    assert not [hint for hint in ("4111", "a@b.c") if hint in json.dumps(shown)]
    for guess in ("4111", "a@b.c"):
        assert keeping("payments", hidden, Search.of("", guess))(raw) is None
        assert keeping("payments", None, Search.of("", guess))(raw) is not None
    assert keeping("payments", hidden, Search.of("secret", ""))(raw) is None
    told = (("a", b'{"email": "a@b.c"}'), ("b", b"[" * 99 + b'"a@b.c"' + b"]" * 99), ("c", b"\x81\xa5email\xa1x"))
    kept = keeping("payments", hidden, Search())(raw._replace(headers=told, value=b"\x81\xc4\x05email\xa5a@b.c"))
    assert [entry[1]["kind"] for entry in kept["headers"]] == ["json", "hidden", "messagepack"]
    assert "a@b.c" not in json.dumps(kept)
    everything = fields_of(read_rules('[{"fields": ["*"]}]'), "any", [])
    assert everything is not None
    covered = {"kind": "hidden", "text": "", "size": len(value), "cut": False}
    assert keeping("any", everything, Search())(raw)["value"] == covered


def test_an_answer_is_bounded_whatever_the_headers_are() -> None:
    """A hundred records with fifty long headers each were an answer of 104 MB."""
    long = "a" * 900_000
    raw = Raw(0, 1, 2, None, b"v", tuple((long, long.encode()) for _ in range(60)), False)
    shown = keeping("t", None, Search())(raw)
    assert len(json.dumps(shown)) < 50 * 3_000
    assert (len(shown["headers"]), shown["headers_total"]) == (50, 60)
    [name, value] = shown["headers"][0]
    assert (len(name), len(value["text"]), value["cut"], value["size"]) == (1_000, 1_000, True, 900_000)
    assert keeping("t", None, Search.of("", "aaaa"))(raw) is not None  # the search sees all of it


NONSENSE = ("{", '{"fields": ["a"]}', '[{"fields": "a"}]', "[{}]", '[{"fields": ["a"], "field": 1}]')


@pytest.mark.parametrize("text", [*NONSENSE, '[{"topics": "(", "fields": ["a"]}]'])
def test_rules_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="page_record_masks"):
        read_rules(text)
    assert read_rules(" ") == ()


def test_who_may_not_read_the_connection_sees_no_record(
    filled: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, where = make_app(filled), "/api/records?topic=p&limit=2"
    assert PageClient(app, "VIEWER").answer(where).status_code == 403
    assert PageClient(app, None).answer(where).status_code == 401
    assert PageClient(app, "VIEWER").json("/api/actions")["records"] is False
    assert [entry for entry in _entries() if '"topic": "p"' in entry[2]] == []
    found = PageClient(app, "OP").json(where + "&text=29")
    assert [(r["partition"], r["offset"], r["timestamp_ms"]) for r in found["records"]] == [(0, 29, 1029)]
    assert found["records"][0]["headers"] == [["h", {"kind": "text", "text": "v", "size": 1, "cut": False}]]
    # Other tests of this process have looked at other topics.
    ((event, owner, extra),) = [entry for entry in _entries() if '"topic": "p"' in entry[2]]
    assert (event, owner) == ("logyard_records", "op")
    assert (json.loads(extra)["topic"], json.loads(extra)["text"]) == ("p", "29")
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORDS", "logyard_default")
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", '[{"fields": ["n"], "unless": ["op"]}]')
    assert PageClient(app, "OP").json(where)["masked"] is False
    (record, _) = PageClient(app, "VIEWER").json(where)["records"]
    assert json.loads(record["value"]["text"]) == {"n": STARS}
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_RECORD_MASKS", "nonsense")
    assert PageClient(app, "OP").answer(where).status_code == 502  # rather nothing than what should be hidden
    assert PageClient(app, "OP").answer("/api/records?topic=gone").status_code == 404
    assert PageClient(app, "OP").answer("/api/records?topic=p&limit=101").status_code == 422


def test_a_topic_that_kafka_refuses_is_refused(filled: MemoryCluster, known: Connections, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> Fetched:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")

    monkeypatch.setattr(MemoryClient, "fetch", refuse)
    answer = PageClient(make_app(filled), "OP").answer("/api/records?topic=p")
    assert (answer.status_code, answer.json()) == (403, {"detail": "the connection's user may not read this topic"})


def test_looks_are_few_and_end_when_they_are_left() -> None:
    looks = Looks()

    def until_left(left: Callable[[], bool]) -> bool:
        while not left():
            pass
        return True

    begun = [looks.begin(until_left) for _ in range(THREADS + WAITING_MAX)]
    with pytest.raises(Busy):
        looks.begin(until_left)
    for look in begun:
        look.leave()
    assert all(look.future.cancelled() or look.future.result(5) for look in begun)
    last = looks.begin(lambda left: left())
    assert last.future.result(5) is False


def _entries() -> list[tuple[Any, ...]]:
    """The looks in Airflow's audit log, which this session's database has kept from no other test."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    with create_session(scoped=False) as session:
        wanted = session.query(Log.event, Log.owner, Log.extra).filter(Log.event == "logyard_records")
        return [tuple(row) for row in wanted.order_by(Log.id)]
