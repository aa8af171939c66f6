"""librdkafka's errors as one line each, and records on their way to it."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from logyard.spark_jobs.sink.client import LibrdkafkaTransactions, cannot
from logyard.spark_jobs.sink.errors import CannotWrite, Fenced
from logyard.spark_jobs.sink.rows import Rows

# Errors of librdkafka's own, by their numbers.
FENCED, UNSUPPORTED_FEATURE = -144, -165


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "grant WRITE on transactional ids"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "grant READ on groups"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "grant WRITE on the topics"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "lower transactionTimeoutMs"),
        (UNSUPPORTED_FEATURE, "these brokers have no transactions"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "raise kafka.message.max.bytes"),
    ],
)
def test_an_error_says_what_to_do(code: int, text: str) -> None:
    said = cannot("transactional id w-0, start", KafkaError(code))
    assert not isinstance(said, Fenced)
    assert text in str(said)
    assert str(said).startswith("transactional id w-0, start: ")
    assert "\n" not in str(said)


@pytest.mark.parametrize("code", [FENCED, KafkaError.INVALID_PRODUCER_EPOCH])
def test_a_later_attempt_is_told_from_other_errors(code: int) -> None:
    assert isinstance(cannot("commit", KafkaError(code)), Fenced)


class Producer:
    """librdkafka's, with a queue of three records."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.sent, self.room = settings, list[tuple[Any, ...]](), 3
        self.polls = 0

    def produce(self, topic: str, value: bytes | None, key: bytes | None, **more: Any) -> None:
        if not self.room:
            raise BufferError
        self.room -= 1
        self.sent.append((topic, value, key, more))

    def poll(self, seconds: float) -> None:
        self.polls += 1
        self.room = 3


def transactions(topic: str | None) -> tuple[LibrdkafkaTransactions, Producer]:
    made: list[Producer] = []

    def make(settings: dict[str, Any]) -> Producer:
        made.append(Producer(settings))
        return made[0]

    library = SimpleNamespace(Producer=make, KafkaException=KafkaException)
    counts = {"t": 4, "other": 2}
    sender = LibrdkafkaTransactions(library, {"transactional.id": "w-0"}, "t", topic, counts.__getitem__)
    return sender, made[0]


def test_records_reach_librdkafka_with_what_their_columns_say() -> None:
    sender, producer = transactions(None)
    rows = Rows(
        keys=[b"a", None, b"c", b"d"],
        values=[b"1", b"2", None, b"4"],
        topics=["t", "other", "t", "t"],
        partitions=[3, None, None, 0],
        timestamps_ms=[None, 5, None, 0],
        headers=[None, [("h", b"x")], None, []],
    )
    sender.send(rows)
    assert sorted(producer.sent, key=str) == sorted(
        [
            ("t", b"1", b"a", {"partition": 3}),
            ("other", b"2", None, {"timestamp": 5, "headers": [("h", b"x")]}),
            ("t", None, b"c", {}),
            ("t", b"4", b"d", {"partition": 0, "timestamp": 1}),
        ],
        key=str,
    )
    assert producer.polls >= 2, "it waited for room in the queue"


def test_rows_of_keys_and_values_are_each_sent_once_though_the_queue_is_full_in_between() -> None:
    sender, producer = transactions("t")
    keys = [None, *(b"%d" % number for number in range(9))]
    sender.send(Rows(keys=keys, values=[b"v%d" % number for number in range(9)] + [None]))
    assert producer.sent == [
        ("t", value, key, {}) for key, value in zip(keys, [b"v%d" % n for n in range(9)] + [None], strict=True)
    ]
    assert producer.polls >= 3, "it waited for room in the queue"


def test_a_later_attempt_is_told_also_where_librdkafka_was_in_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fatal error that comes while it hands over purged records is raised as Python's own, with it as the cause."""
    sender, producer = transactions("t")
    purged: list[str] = []

    def fails(*_: Any) -> None:
        try:
            raise KafkaException(KafkaError(FENCED))
        except KafkaException as below:
            raise SystemError("a callback returned a result with an exception set") from below

    for name, call in (("begin_transaction", int), ("abort_transaction", fails), ("purge", lambda: purged.append("x"))):
        monkeypatch.setattr(producer, name, call, raising=False)
    sender.begin()
    monkeypatch.setattr(producer, "poll", fails)
    with pytest.raises(Fenced, match="a later attempt"):
        sender.send(Rows(keys=[None], values=[b"v"]))
    sender.close()
    assert purged == ["x"]


def test_a_plain_row_that_librdkafka_refuses_is_told() -> None:
    sender, producer = transactions("t")

    def refuse(*_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    producer.produce = refuse  # type: ignore[assignment]
    with pytest.raises(CannotWrite, match=r"topic t: MSG_SIZE_TOO_LARGE .*raise kafka.message.max.bytes"):
        sender.send(Rows([None], [b"v"]))


def test_it_has_connected_when_it_starts() -> None:
    """Else librdkafka asks for its coordinator in vain, and mostly not again for half a second."""
    sender, producer = transactions("t")
    told: list[int] = []
    producer.init_transactions = lambda _: told.append(producer.polls)  # type: ignore[attr-defined]
    sender.start()
    assert told == [1]


def test_the_option_goes_before_the_column() -> None:
    sender, producer = transactions("t")
    sender.send(Rows(keys=[None], values=[b"v"], topics=["other"]))
    assert producer.sent == [("t", b"v", None, {})]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (Rows([None], [b"v"], topics=[None]), "a row's topic is null"),
        (Rows([None], [b"v"], topics=["other"], partitions=[2]), "partition 2 of other does not exist: it has 2"),
        (Rows([None], [b"v"], topics=["t"], partitions=[-1]), "partition -1 of t does not exist: it has 4"),
    ],
)
def test_rows_that_have_no_place(rows: Rows, text: str) -> None:
    sender, producer = transactions(None)
    with pytest.raises(CannotWrite) as refused:
        sender.send(rows)
    assert text in str(refused.value)
    assert producer.sent == []


def test_a_record_that_the_brokers_refuse_stops_the_write() -> None:
    sender, producer = transactions("t")
    producer.settings["on_delivery"](KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None)
    with pytest.raises(CannotWrite, match="a record was refused: TOPIC_AUTHORIZATION_FAILED"):
        sender.send(Rows([None], [b"v"]))
