"""Kafka by librdkafka: the only importer of confluent_kafka in spark_jobs. Works in tasks and on the driver.

Offsets are read by the admin client, because a consumer of librdkafka takes a second to find its coordinator.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from logyard.spark_jobs.sink.errors import CannotWrite, Fenced
from logyard.spark_jobs.sink.rows import Rows

REQUEST_S = 60.0
COMMIT_S = 120.0
QUEUE_KIB = 64 * 1024
IDLE_MS = 10_000
_FULL_QUEUE_S = 0.01
# How long an open transaction may take to end before its offsets are given up. A live one takes milliseconds.
UNSTABLE_S = 5.0
_LOOK_AGAIN_S = 0.1
# librdkafka asks for its coordinator when it is told to start. Without a connection by then it waits for 500 ms before
# it asks again, mostly; with one an answer takes 50 ms, of which this is a part.
CONNECTED_S = 0.03

# The name of an error of librdkafka or a broker → what to do about it.
REMEDIES = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant WRITE on transactional ids that begin with the writeId",
    "GROUP_AUTHORIZATION_FAILED": "grant READ on groups that begin with the writeId",
    "TOPIC_AUTHORIZATION_FAILED": "grant WRITE on the topics, and READ on the progress topic",
    "INVALID_TRANSACTION_TIMEOUT": "lower transactionTimeoutMs to the brokers' transaction.max.timeout.ms",
    "MSG_SIZE_TOO_LARGE": "raise kafka.message.max.bytes, and max.message.bytes of the topic",
    "_UNSUPPORTED_FEATURE": "these brokers have no transactions, so nothing can be written exactly once",
    "UNSUPPORTED_VERSION": "these brokers have no transactions, so nothing can be written exactly once",
    "_TIMED_OUT": "look whether the brokers are up and have transactions",
    "_ALL_BROKERS_DOWN": "look whether the brokers are up",
}
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


def library() -> Any:
    """Return confluent_kafka; raises CannotWrite where it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise CannotWrite("confluent-kafka is missing: install logyard[spark] in the executors' Python") from None
    return confluent_kafka


def cannot(what: str, error: Any) -> CannotWrite:
    """Return the error to raise for a KafkaError; `what` says what was tried."""
    name = error.name()
    if name in FENCED:
        return Fenced(f"{what}: a later attempt of the same work has begun, or the transaction ran out of time")
    remedy = REMEDIES.get(name)
    return CannotWrite(f"{what}: {name} ({' '.join(error.str().split())}){f': {remedy}' if remedy else ''}")


class Client:
    """One cluster, with connections that are made when they are needed."""

    def __init__(self, settings: Mapping[str, str], progress_topic: str, timeout_ms: int, topic: str | None) -> None:
        """:param topic: where rows go; None: where their column `topic` says."""
        self._library = library()
        self._settings = dict(settings)
        self._progress_topic, self._timeout_ms, self._topic = progress_topic, timeout_ms, topic
        self._admin: Any = None
        self._counts: dict[str, int] = {}

    def transactions(self, transactional_id: str) -> "LibrdkafkaTransactions":
        settings = {
            "linger.ms": "20",
            "queue.buffering.max.kbytes": str(QUEUE_KIB),
            # Else librdkafka 2.10 to 2.16 may wait for ever for a group coordinator that died (its issues 5511, 5456).
            "connections.max.idle.ms": str(IDLE_MS),
            "partitioner": "murmur2_random",  # as Java's
            **self._settings,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(self._timeout_ms),
        }
        return LibrdkafkaTransactions(self._library, settings, self._progress_topic, self._topic, self.check_topic)

    def check_topic(self, topic: str) -> int:
        if topic not in self._counts:
            asked = self._library.TopicCollection([topic])
            future = self._connected().describe_topics(asked, request_timeout=REQUEST_S)[topic]
            self._counts[topic] = len(self._answer(f"topic {topic}", future).partitions)
        return self._counts[topic]

    def committed(self, groups: Sequence[str]) -> Mapping[str, str | None]:
        deadline = time.monotonic() + UNSTABLE_S
        found: dict[str, str | None] = {}
        left = list(groups)
        while True:
            futures = {group: self._ask_offset(group) for group in left}
            left = []
            for group, future in futures.items():
                offset = self._answer(f"offsets of group {group}", future).topic_partitions[0]
                if offset.error is None:
                    found[group] = offset.metadata if offset.offset >= 0 else None
                elif offset.error.name() == "UNSTABLE_OFFSET_COMMIT":
                    left.append(group)
                else:
                    raise cannot(f"offsets of group {group}", offset.error)
            if not left or time.monotonic() > deadline:
                return found
            time.sleep(_LOOK_AGAIN_S)

    def _ask_offset(self, group: str) -> Any:
        partition = self._library.TopicPartition(self._progress_topic, 0)
        asked = [self._library.ConsumerGroupTopicPartitions(group, [partition])]
        return self._connected().list_consumer_group_offsets(asked, require_stable=True, request_timeout=REQUEST_S)[
            group
        ]

    def groups(self, prefix: str) -> list[str]:
        listed = self._answer("groups", self._connected().list_consumer_groups(request_timeout=REQUEST_S))
        for error in listed.errors:  # a broker that does not answer may be the one that knows
            raise cannot("groups", error.args[0])
        return [one.group_id for one in listed.valid if one.group_id.startswith(prefix)]

    def _connected(self) -> Any:
        if self._admin is None:
            self._admin = _made(lambda: self._library.admin.AdminClient(self._settings), self._library)
        return self._admin

    def _answer(self, what: str, future: Any) -> Any:
        try:
            return future.result(REQUEST_S + 10)
        except self._library.KafkaException as error:
            raise cannot(what, error.args[0]) from None


class LibrdkafkaTransactions:
    """A producer with one transactional id."""

    def __init__(
        self,
        library: Any,
        settings: Mapping[str, str],
        progress_topic: str,
        topic: str | None,
        check_topic: Callable[[str], int],
    ) -> None:
        self._library, self._settings = library, settings
        self._progress_topic, self._topic, self._check_topic = progress_topic, topic, check_topic
        self.name = f"transactional id {settings['transactional.id']}"
        self._failed: Any = None
        self._is_open = False
        own = {"delivery.report.only.error": True, "on_delivery": self._delivered}
        self._producer = _made(lambda: library.Producer({**settings, **own}), library)

    def _delivered(self, error: Any, _: Any) -> None:
        self._failed = self._failed or error

    def start(self) -> None:
        self._poll(CONNECTED_S)
        self.attempt("start", lambda: self._producer.init_transactions(REQUEST_S))

    def begin(self) -> None:
        self.attempt("begin", self._producer.begin_transaction)
        self._is_open = True

    def send(self, rows: Rows) -> None:
        for topic, where in self._targets(rows):
            count = self._check_topic(topic)
            asked = () if rows.partitions is None else rows.partitions
            for partition in (asked[number] for number in where if asked):
                if partition is not None and not 0 <= partition < count:
                    raise CannotWrite(f"partition {partition} of {topic} does not exist: it has {count}")
            self._queue(topic, rows, where)
        self._poll(0)

    def _targets(self, rows: Rows) -> Iterable[tuple[str, Iterable[int]]]:
        """Yield topics and the numbers of their rows."""
        if self._topic is not None or rows.topics is None:
            yield self._topic or self._progress_topic, range(len(rows))
            return
        by_topic: dict[str, list[int]] = {}
        for number, topic in enumerate(rows.topics):
            if not topic:
                raise CannotWrite("a row's topic is null: give the option topic, or filter such rows out")
            by_topic.setdefault(topic, []).append(number)
        yield from by_topic.items()

    def _queue(self, topic: str, rows: Rows, where: Iterable[int]) -> None:
        partitions, times, headers = rows.partitions, rows.timestamps_ms, rows.headers
        if partitions is None and times is None and headers is None and isinstance(where, range):
            self._queue_plain(topic, rows)
            return
        produce, keys, values = self._producer.produce, rows.keys, rows.values
        for number in where:
            more: dict[str, Any] = {}
            if partitions is not None and partitions[number] is not None:
                more["partition"] = partitions[number]
            if times is not None and times[number] is not None:
                more["timestamp"] = times[number] or 1  # librdkafka takes 0 for "now"
            if headers is not None and headers[number]:
                more["headers"] = headers[number]
            while True:
                try:
                    produce(topic, values[number], keys[number], **more)
                    break
                except BufferError:  # the queue is full: its size is what bounds a task's memory
                    self._poll(_FULL_QUEUE_S)
                except self._library.KafkaException as error:
                    raise cannot(f"topic {topic}", error.args[0]) from None

    def _queue_plain(self, topic: str, rows: Rows) -> None:
        """Queue all rows, which have keys and values only: nothing but the call for each, which halves its time."""
        produce, sent = self._producer.produce, 0
        while sent < len(rows):
            left = islice(zip(rows.keys, rows.values, strict=True), sent, None)
            try:
                for key, value in left:
                    produce(topic, value, key)
                    sent += 1
            except BufferError:
                self._poll(_FULL_QUEUE_S)
            except self._library.KafkaException as error:
                raise cannot(f"topic {topic}", error.args[0]) from None

    def _poll(self, seconds: float) -> None:
        """Take in what became of records; raises CannotWrite for the first that was refused."""
        try:
            self._called(lambda: self._producer.poll(seconds))
        except self._library.KafkaException as failure:  # one that ends the producer
            raise cannot(self.name, failure.args[0]) from None
        if self._failed is not None:
            raise cannot("a record was refused", self._failed)

    def commit(self, group: str, epoch: int, metadata: str) -> None:
        reader = self._library.Consumer({**_connection(self._settings), "group.id": group})
        try:
            member = reader.consumer_group_metadata()
        finally:
            reader.close()
        offsets = [self._library.TopicPartition(self._progress_topic, 0, epoch + 1, metadata)]
        self.attempt("offsets", lambda: self._producer.send_offsets_to_transaction(offsets, member, REQUEST_S))
        self.attempt("commit", lambda: self._producer.commit_transaction(COMMIT_S))
        self._is_open = False

    def attempt(self, step: str, action: Callable[[], Any]) -> None:
        """Do a step, again where librdkafka says that it may succeed then; raises CannotWrite."""
        deadline = time.monotonic() + COMMIT_S
        while True:
            try:
                self._called(action)
                return
            except self._library.KafkaException as failure:
                error = failure.args[0]
                if error.retriable() and time.monotonic() < deadline:
                    continue
                if error.txn_requires_abort():
                    self._poll(0)  # a record that was refused says more
                raise cannot(f"{self.name}, {step}", error) from None

    def _called(self, action: Callable[[], Any]) -> None:
        """Call librdkafka; raises its KafkaException also where that is under what Python makes of it in a callback."""
        try:
            action()
        except SystemError as problem:
            if isinstance(problem.__cause__, self._library.KafkaException):
                raise problem.__cause__ from None
            raise

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            try:
                self._called(lambda: self._producer.abort_transaction(REQUEST_S))
            except self._library.KafkaException:
                self._producer.purge()  # fenced or out of reach: the brokers abort it
        self._producer = None


# What a consumer that never connects must be told; the rest of a producer's settings it refuses.
_PREFIXES = ("bootstrap.servers", "security.", "sasl.", "ssl.", "client.")


def _connection(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key.startswith(_PREFIXES)}


def _made(make: Callable[[], Any], library: Any) -> Any:
    try:
        return make()
    except library.KafkaException as error:
        text = " ".join(error.args[0].str().split())
        raise CannotWrite(f"option kafka.*: {text} (they are librdkafka's settings, not Java's)") from None
