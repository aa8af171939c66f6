"""Records written to a topic: acknowledged by all in-sync replicas, or the task fails."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.errors import LogyardError
from logyard.admin.settings import BadSettings
from logyard.operators import lineages, outcomes, written_topics
from logyard.operators.callables import called
from logyard.operators.fields import as_json, as_list, as_mapping
from logyard.operators.hooks.records import RecordsFailed, RecordsHook, asked, partitions_of, refusal
from logyard.operators.topics import TopicOperator

_FULL_QUEUE_S = 0.2
_TRANSACTION_MS_MAX = 900_000  # the brokers' transaction.max.timeout.ms, if nobody changed it


class ProduceToTopicOperator(TopicOperator):
    """Write records to a topic that exists, and wait until all in-sync replicas have them.

    Returns {"topic", "records", "bytes", "offsets": partition → {"start", "end"}, "dry_run"}. A try that fails may have
    written some of its records, and the next try writes all of them again, unless `transactional` is set: then
    `read_committed` readers see the records of a try all together or not at all.

    :param records: mappings with `key`, `value`, `headers`, `partition`, `timestamp_ms`, or pairs of key and value; a
        list or its JSON. Text is written as UTF-8, None as null (a tombstone), other values as JSON. (templated)
    :param producer_function: instead of `records`: a function, or its dotted path, that returns or yields them.
    :param producer_function_args: its arguments. (templated)
    :param producer_function_kwargs: its keyword arguments. (templated)
    :param transactional: write in one transaction. The login needs Write on transactional ids `logyard-…`.
    :param client_options: librdkafka's options beside the connection's, such as `compression.type`. (templated)
    """

    tells = staticmethod(outcomes.produced)
    writes = staticmethod(written_topics.produced)
    lineage = staticmethod(lineages.produced)
    template_fields = (
        *TopicOperator.template_fields,
        "records",
        "producer_function_args",
        "producer_function_kwargs",
        "client_options",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"client_options": "json"}

    def __init__(
        self,
        *,
        topic: str,
        records: Sequence[Any] | str | None = None,
        producer_function: Callable[..., Any] | str | None = None,
        producer_function_args: Sequence[Any] | None = None,
        producer_function_kwargs: Mapping[str, Any] | None = None,
        transactional: bool = False,
        client_options: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, **kwargs)
        self.records = records
        self.producer_function = producer_function
        self.producer_function_args = producer_function_args or ()
        self.producer_function_kwargs = producer_function_kwargs or {}
        self.transactional = transactional
        self.client_options = client_options

    def execute(self, context: Context) -> dict[str, Any]:
        given = self._given()
        delivered = Delivered(self.topic)
        self._check_topic()
        if self.checks_only:
            sizes = [len(one["key"] or b"") + len(one["value"] or b"") for one in map(as_record, given)]
            return {**delivered.as_json(), "records": len(sizes), "bytes": sum(sizes), "dry_run": True}
        options: dict[str, Any] = {"message.timeout.ms": round(self.wait_timeout_s * 1000)}
        if self.transactional:
            ti: Any = context["ti"]
            options |= dict.fromkeys(("message.timeout.ms", "transaction.timeout.ms"), self._transaction_ms())
            options["transactional.id"] = f"logyard-{ti.dag_id}-{ti.task_id}-{ti.run_id}-{ti.map_index}"
        options |= as_mapping("client_options", self.client_options)
        producer = RecordsHook(self.logyard_conn_id).producer(options)
        if self.transactional:
            self._in_a_transaction(producer, given, delivered)
        else:
            self._write(producer, given, delivered)
        return {**delivered.as_json(), "dry_run": False}

    def _transaction_ms(self) -> int:
        return min(round(self.wait_timeout_s * 1000), _TRANSACTION_MS_MAX)

    def _given(self) -> Iterable[Any]:
        if (self.records is None) == (self.producer_function is None):
            raise BadSettings("give either records or producer_function")
        if self.producer_function is None:
            given: list[Any] = as_list("records", as_json("records", self.records))
            return given
        made: Iterable[Any] = called(
            "producer_function", self.producer_function, self.producer_function_args, self.producer_function_kwargs
        )()
        return made

    def _check_topic(self) -> None:
        """Raise ApiError UNKNOWN_TOPIC_OR_PARTITION: a producer would have the brokers create what is misspelt."""
        consumer = RecordsHook(self.logyard_conn_id).consumer("logyard")
        try:
            partitions_of(consumer, [self.topic], self.hook.settings.total_timeout_s)
        finally:
            consumer.close()

    def _in_a_transaction(self, producer: Any, given: Iterable[Any], delivered: "Delivered") -> None:
        asked("transaction", producer.init_transactions, self.wait_timeout_s)
        asked("transaction", producer.begin_transaction)
        try:
            self._write(producer, given, delivered)
        except BaseException:
            try:
                asked("transaction", producer.abort_transaction, self.wait_timeout_s)
            except LogyardError as problem:
                self.log.warning("%s; the brokers end it after its time-out", problem)
            raise
        asked("transaction", producer.commit_transaction, self.wait_timeout_s)

    def _write(self, producer: Any, given: Iterable[Any], delivered: "Delivered") -> None:
        sent = 0
        for one in given:
            self._send(producer, as_record(one), delivered)
            producer.poll(0)
            delivered.check()
            sent += 1
        deadline = time.monotonic() + self.wait_timeout_s + 1
        while producer.flush(1.0) and time.monotonic() < deadline:
            delivered.check()
        delivered.check_all(sent)

    def _send(self, producer: Any, record: dict[str, Any], delivered: "Delivered") -> None:
        deadline = time.monotonic() + self.wait_timeout_s
        while True:
            try:
                asked(f"topic {self.topic}", producer.produce, self.topic, on_delivery=delivered.add, **record)
                return
            except BufferError:  # librdkafka's queue is full
                if time.monotonic() >= deadline:
                    raise RecordsFailed(f"topic {self.topic}: the brokers take no records") from None
                producer.poll(_FULL_QUEUE_S)
                delivered.check()


class Delivered:
    """What the brokers have acknowledged, and the first refusal."""

    def __init__(self, topic: str) -> None:
        self.records = 0
        self._topic, self._bytes = topic, 0
        self._error: Any = None
        self._offsets: dict[int, tuple[int, int]] = {}

    def add(self, error: Any, message: Any) -> None:
        """librdkafka's callback for one record."""
        if error is not None:
            self._error = self._error or error
            return
        self.records += 1
        self._bytes += len(message.key() or b"") + len(message.value() or b"")
        offset, partition = message.offset(), message.partition()
        start, end = self._offsets.get(partition, (offset, offset + 1))
        self._offsets[partition] = (min(start, offset), max(end, offset + 1))

    def check(self) -> None:
        """Raise the first refusal: ApiError, RecordsFailed."""
        if self._error is not None:
            raise refusal(f"topic {self._topic}", self._error)

    def check_all(self, sent: int) -> None:
        """Raise the first refusal, or RecordsFailed if fewer than `sent` are acknowledged."""
        self.check()
        if self.records != sent:
            raise RecordsFailed(f"topic {self._topic}: {sent - self.records} of {sent} records are not acknowledged")

    def as_json(self) -> dict[str, Any]:
        offsets = {str(p): {"start": start, "end": end} for p, (start, end) in sorted(self._offsets.items())}
        return {"topic": self._topic, "records": self.records, "bytes": self._bytes, "offsets": offsets}


def as_record(given: Any) -> dict[str, Any]:
    """The arguments of `Producer.produce` for a mapping, or a pair of key and value. Raises BadSettings."""
    if isinstance(given, Mapping):
        unknown = set(given) - {"key", "value", "headers", "partition", "timestamp_ms"}
        if unknown or "value" not in given:
            raise BadSettings(f"a record has value, key, headers, partition, timestamp_ms, not {sorted(given)}")
        made: dict[str, Any] = {"key": as_bytes(given.get("key")), "value": as_bytes(given["value"])}
        if given.get("headers"):
            pairs = given["headers"].items() if isinstance(given["headers"], Mapping) else given["headers"]
            made["headers"] = [(str(name), as_bytes(value)) for name, value in pairs]
        if given.get("partition") is not None:
            made["partition"] = int(given["partition"])
        if given.get("timestamp_ms") is not None:
            made["timestamp"] = int(given["timestamp_ms"])
        return made
    if isinstance(given, (list, tuple)) and len(given) == 2:
        return {"key": as_bytes(given[0]), "value": as_bytes(given[1])}
    raise BadSettings(f"a record is a mapping, or a pair of key and value, not a {type(given).__name__}")


def as_bytes(value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as null, other values as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()
