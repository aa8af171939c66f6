"""Records written to a topic: acknowledged by all in-sync replicas, or the task fails."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.settings import BadSettings
from logyard.operators import lineages, outcomes, written_topics
from logyard.operators.callables import called
from logyard.operators.client_options import TakesClientOptions
from logyard.operators.fields import as_integer, as_json, as_list
from logyard.operators.hooks.records import RecordsHook
from logyard.operators.transaction_outcomes import transaction_options
from logyard.operators.writing import EndsItsTransaction, Writer, counted, timestamp_of


class ProduceToTopicOperator(TakesClientOptions, EndsItsTransaction):
    """Write records to a topic that exists, and wait until all in-sync replicas have them.

    Returns {"topic", "records", "bytes", "offsets": partition → {"start", "end"}, "dry_run"}. A try that fails may have
    written some of its records, and the next try writes all of them again, unless `transactional` is set: then
    `read_committed` readers see them all together or not at all, and once, however many tries there are. (Before
    Airflow 3.3 a try whose commit was not answered is repeated.)

    :param records: mappings with `key`, `value`, `headers`, `partition`, `timestamp_ms`, or pairs of key and value; a
        list or its JSON. Text is written as UTF-8, None as null (a tombstone), other values as JSON. (templated)
    :param producer_function: instead of `records`: a function, or its dotted path, that returns or yields them.
    :param producer_function_args: its arguments. (templated)
    :param producer_function_kwargs: its keyword arguments. (templated)
    :param transactional: write in one transaction. The login needs Write on transactional ids `logyard-…`, and Read on
        the topic to look what became of a commit that was not answered.
    :param client_options: librdkafka's options beside the connection's, such as `compression.type`. (templated)
    """

    tells = staticmethod(outcomes.produced)
    writes = staticmethod(written_topics.produced)
    lineage = staticmethod(lineages.produced)
    template_fields = (
        *EndsItsTransaction.template_fields,
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
        hook = RecordsHook(self.logyard_conn_id)
        hook.require_topic(self.topic, self.hook.settings.total_timeout_s)
        if self.checks_only:
            return {**counted(self.topic, map(as_record, given)), "dry_run": True}
        options: dict[str, Any] = {"message.timeout.ms": round(self.wait_timeout_s * 1000)}
        options |= transaction_options(context, self.wait_timeout_s) if self.transactional else {}
        options |= self.options()

        def write(writer: Writer) -> dict[str, Any]:
            writer.write(map(as_record, given))
            return {**writer.delivered.as_json(), "dry_run": False}

        if self.transactional:
            return self.write_once(context, hook, hook.producer(options), self.topic, write)
        with self.writing(hook.producer(options), self.topic, transactional=False) as writer:
            return write(writer)

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
            made["partition"] = as_integer("partition of a record", given["partition"], -1)
        if given.get("timestamp_ms") is not None:
            made["timestamp"] = timestamp_of(as_integer("timestamp_ms of a record", given["timestamp_ms"], 0))
        return made
    if isinstance(given, (list, tuple)) and len(given) == 2:
        return {"key": as_bytes(given[0]), "value": as_bytes(given[1])}
    raise BadSettings(f"a record is a mapping, or a pair of key and value, not a {type(given).__name__}")


def as_bytes(value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as null, other values as JSON. Raises BadSettings."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return (value if isinstance(value, str) else json.dumps(value)).encode()
    except (TypeError, ValueError) as problem:
        raise BadSettings(f"a record cannot be written as JSON in UTF-8: {problem}") from None
