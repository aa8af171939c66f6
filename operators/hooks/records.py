"""Records of a Logyard connection's cluster: librdkafka's producer and consumer, and the refusals that they meet.

Only this module and the type checks of its callers know confluent_kafka. What reads and writes gets its own messages
(`confluent_kafka.Message`), as in Airflow's own Kafka provider, so functions for them work here as they are.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from operator import methodcaller
from typing import Any

from logyard.admin.errors import ApiError, ErrorCode, LogyardError
from logyard.admin.settings import BadSettings
from logyard.login import librdkafka
from logyard.login.oauth import TokenSource
from logyard.login.security import OAUTHBEARER
from logyard.operators.contents.formats import BYTES, REGISTRY, Formats
from logyard.operators.hooks.cluster import ClusterHook

# Else librdkafka 2.10 to 2.16 may wait for ever for a group coordinator that died (its issues 5511, 5456).
_IDLE_MS = 10_000
_TOKEN_S = 300.0
# So long a broker that does not know a topic is asked again: one that was made just now is not known to all yet.
HEARD_S = 3.0
_AGAIN_S = 0.1

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_KNOWN = frozenset(code.value for code in ErrorCode)


# Where the name of a header is not UTF-8, `message.headers()` gives an error and a broken list at once. A call that
# Python has specialised, as it does in loops, does not see the error; this one always does.
_HEADERS = methodcaller("headers")


class RecordsFailed(LogyardError):
    """Records were not written, or not read; the text says why. Trying again may help."""


class ProducerFenced(RecordsFailed):
    """Another producer has the transactional id now, or the transaction ran out of time: the brokers have ended it."""


class RecordsHook(ClusterHook):
    """Producers and consumers of a connection's cluster.

    :param logyard_conn_id: the connection.
    """

    def producer(self, options: Mapping[str, Any] | None = None) -> Any:
        """A `confluent_kafka.Producer` that is idempotent and waits for all in-sync replicas. Raises BadSettings."""
        defaults = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
        return self._made("Producer", defaults | dict(options or {}))

    def consumer(self, group: str, options: Mapping[str, Any] | None = None) -> Any:
        """A `confluent_kafka.Consumer` that commits only when it is told to. Raises BadSettings.

        It reads committed transactions, and reports it (`KafkaError._PARTITION_EOF`) when it has come to the end of a
        partition. An offset that does not exist is an error, not a jump.
        """
        fixed = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
        return self._made("Consumer", {"isolation.level": "read_committed", **(options or {}), **fixed})

    def require_topic(self, topic: str, timeout_s: float) -> None:
        """Raise ApiError UNKNOWN_TOPIC_OR_PARTITION … : a producer would have the brokers create what is misspelt."""
        with closing(self.consumer("logyard")) as consumer:
            partitions_of(consumer, [topic], timeout_s)

    def formats(self, key: str = BYTES, value: str = BYTES) -> Formats:
        """What decodes the keys and values of messages, by the connection's schema registry too. Raises BadSettings."""
        settings = self.settings if REGISTRY in (key, value) else None
        if settings is not None and settings.schema_registry_problem:
            raise BadSettings(settings.schema_registry_problem)
        return Formats(key, value, None if settings is None else settings.schema_registry)

    def client_options(self) -> dict[str, Any]:
        """librdkafka's options of the connection. Contains secrets. Raises BadSettings."""
        settings = self.settings
        if settings.delegation_token:
            raise BadSettings("librdkafka cannot log in by a delegation token: records need a user in the connection")
        made: dict[str, Any] = {
            "bootstrap.servers": ",".join(settings.bootstrap),
            "client.id": "logyard",
            "connections.max.idle.ms": _IDLE_MS,
            **librdkafka.options(settings),
        }
        if settings.sasl_mechanism == OAUTHBEARER and settings.oauth_token is not None:
            source = TokenSource(settings)
            made = {key: value for key, value in made.items() if not key.startswith("sasl.oauthbearer")}
            made["oauth_cb"] = lambda _: (source.token(), time.time() + _TOKEN_S)
        return made

    def _made(self, kind: str, options: Mapping[str, Any]) -> Any:
        confluent = library()
        try:
            return getattr(confluent, kind)({**self.client_options(), **options})
        except confluent.KafkaException as problem:
            raise BadSettings(f"connection {self.logyard_conn_id}: {problem.args[0].str()}") from None


def library() -> Any:
    """confluent_kafka. Raises BadSettings where it is not installed."""
    try:
        import confluent_kafka
    except ImportError:
        raise BadSettings("the package confluent-kafka is missing: pip install 'logyard[airflow]'") from None
    return confluent_kafka


def refusal(what: str, error: Any) -> LogyardError:
    """The error to raise for a KafkaError: ProducerFenced; ApiError for brokers' other answers, else RecordsFailed."""
    text = f"{what}: {error.name()} ({' '.join(error.str().split())})"
    if error.name() in _FENCED:
        return ProducerFenced(text)
    return (
        ApiError(ErrorCode(error.code()), text) if error.code() in _KNOWN and error.code() > 0 else RecordsFailed(text)
    )


def asked(what: str, ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call of librdkafka returns; its KafkaException as ours. Raises ApiError, RecordsFailed."""
    try:
        return ask(*args, **kwargs)
    except library().KafkaException as problem:
        raise refusal(what, problem.args[0]) from None
    except SystemError as problem:
        # A fatal error that comes while callbacks are called is under what Python makes of it in one of them.
        below = problem.__cause__
        if below is None and "without setting an exception" in str(problem):
            # The callback after it has cleared it. A producer's next call tells a fatal one again.
            raise RecordsFailed(f"{what}: librdkafka has failed, and its reason was lost") from None
        if not isinstance(below, library().KafkaException):
            raise
        raise refusal(what, below.args[0]) from None


def partitions_of(consumer: Any, topics: Sequence[str], timeout_s: float) -> list[Any]:
    """The partitions of topics, as confluent_kafka's TopicPartition; a topic `^…` is a regular expression.

    Raises ApiError UNKNOWN_TOPIC_OR_PARTITION (after three seconds: a topic that was made just now is not known to all
    brokers yet), TOPIC_AUTHORIZATION_FAILED …, and BadSettings (no regular expression). No topic is created by asking.
    """
    confluent = library()
    found: dict[str, Any] = {}
    for name in topics:
        if name.startswith("^"):
            is_meant = chosen([name])
            known = asked("metadata", consumer.list_topics, timeout=timeout_s).topics
            found |= {topic: view for topic, view in known.items() if is_meant(topic)}
        else:
            found |= _heard_of(consumer, name, timeout_s)
    for topic, view in found.items():
        if view.error is not None:
            raise refusal(f"topic {topic}", view.error)
    return [confluent.TopicPartition(topic, p) for topic in sorted(found) for p in sorted(found[topic].partitions)]


def chosen(topics: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic is one of those that are named, or that a `^…` means. Raises BadSettings (no expression)."""
    named = {name for name in topics if not name.startswith("^")}
    expressions = [_expression(name) for name in topics if name.startswith("^")]
    return lambda topic: topic in named or any(one.match(topic) for one in expressions)


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError) as problem:
        raise BadSettings(f"topics: {text!r} is no regular expression: {problem}") from None


def _heard_of(consumer: Any, name: str, timeout_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + HEARD_S
    while True:
        views: dict[str, Any] = asked("metadata", consumer.list_topics, name, timeout=timeout_s).topics
        errors = [view.error.code() for view in views.values() if view.error is not None]
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in errors or time.monotonic() > deadline:
            return views
        time.sleep(_AGAIN_S)


def cluster_of(client: Any, topic: str, timeout_s: float) -> str | None:
    """The id of a client's cluster. Raises ApiError, RecordsFailed."""
    found: str | None = asked("metadata", client.list_topics, topic, timeout=timeout_s).cluster_id
    return found


def headers_of(message: Any) -> list[tuple[str, bytes | None]]:
    """The headers of a message of librdkafka. Raises BadSettings where a name is not UTF-8, which Kafka allows and its
    Python client cannot read: no retry mends it."""
    try:
        found: list[tuple[str, bytes | None]] | None = _HEADERS(message)
        return found or []
    except (SystemError, UnicodeDecodeError):
        raise BadSettings(
            f"{message.topic()}-{message.partition()}, offset {message.offset()}: the name of one of its headers is "
            "not UTF-8, so its headers cannot be read; leave the record out by start, end or partitions"
        ) from None
