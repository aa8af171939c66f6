"""Stock clients log in to one broker of ours, by each mechanism, over SASL_SSL; and a wrong password is told."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokens
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.authority import Authority
from tests.support.inside_broker import InsideBroker
from tests.support.real_cluster import eventually
from tests.support.token_endpoint import AUDIENCE, TokenEndpoint

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = "alices-own-word"
EVENTS = [b"%d" % number for number in range(50)]
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


class World:
    """One broker on a loop of its own, in a thread."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "tls")
        self.endpoint = TokenEndpoint(directory / "oauth", {"alice": "client-secret"})
        issued = self.authority.issue("broker", ("localhost", "127.0.0.1"))
        self._settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'PlainLoginModule required user_alice="{PASSWORD}";',
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": HANDLER,
            "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.endpoint.jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(issued.pem),
        }
        self._directory, self._started, self._ended = directory, threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self.port = 0

    def __enter__(self) -> "World":
        self.endpoint.__enter__()
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)
        self.endpoint.__exit__(None, None, None)

    async def _serve(self) -> None:
        async with InsideBroker(self._directory, self._settings) as broker:
            made = {m: ScramCredential.of_password(m, PASSWORD, 4096, b"salt").text() for m in MECHANISMS[1:3]}
            broker.components.configs.credentials.take("alice", made)
            self.port = broker.port_of("SASL_SSL")
            self._started.set()
            await self._ended.wait()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def librdkafka(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        options: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanisms": mechanism,
        }
        if mechanism != "OAUTHBEARER":
            return {**options, "sasl.username": "alice", "sasl.password": password}
        return {
            **options,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": "client-secret",
            "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
        }

    def python(self, mechanism: str, tokens: type) -> dict[str, Any]:
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_context": self.trusting(),
            "sasl_mechanism": mechanism,
        }
        if mechanism == "OAUTHBEARER":
            return {**options, "sasl_oauth_token_provider": tokens()}
        return {**options, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("sasl")) as running:
        yield running


def confluent(world: World, mechanism: str, topic: str) -> list[bytes]:
    options = world.librdkafka(mechanism)
    producer = Producer({**options, "acks": "all"})
    for event in EVENTS:
        producer.produce(topic, event)
    assert producer.flush(30) == 0
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    for _ in EVENTS:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


def kafka_python(world: World, mechanism: str, topic: str) -> list[bytes]:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return world.endpoint.token("alice")

    options = world.python(mechanism, Tokens)
    producer = KafkaProducer(**options, acks="all")
    for event in EVENTS:
        producer.send(topic, event)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **options)
    found = [message.value for _, message in zip(EVENTS, consumer, strict=False)]
    consumer.close()
    return found


def aiokafka(world: World, mechanism: str, topic: str) -> list[bytes]:
    class Tokens(AioTokens):  # type: ignore[misc]
        async def token(self) -> str:
            return world.endpoint.token("alice")

    async def run() -> list[bytes]:
        options = world.python(mechanism, Tokens)
        async with AIOKafkaProducer(**options, acks="all") as producer:
            for event in EVENTS:
                await producer.send_and_wait(topic, event)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in EVENTS]

    return asyncio.run(run())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka])
def test_clients_log_in(world: World, client: Callable[[World, str, str], list[bytes]], mechanism: str) -> None:
    topic = f"{client.__name__}-{mechanism}"
    admin = AdminClient(world.librdkafka(mechanism))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    assert client(world, mechanism, topic) == EVENTS


def test_a_wrong_password_is_told(world: World) -> None:
    errors: list[str] = []
    options = {**world.librdkafka("SCRAM-SHA-256", "wrong"), "error_cb": lambda error: errors.append(error.name())}
    producer = Producer(options)

    def is_told() -> bool:
        producer.poll(0.1)  # any event counts there, not only this one
        return "_AUTHENTICATION" in errors

    eventually(is_told, "an error of authentication")


@pytest.mark.parametrize("kind", ["producer", "idempotent", "subscribed", "assigned", "admin"])
def test_who_is_refused_is_let_in_once_he_has_a_credential(world: World, kind: str) -> None:
    """One client of each kind is told, goes on trying, and works as soon as its user is made."""
    admin, user = AdminClient(world.librdkafka("PLAIN")), f"late-{kind}"
    admin.create_topics([NewTopic(user, 1, 1)])[user].result(20)
    errors: list[str] = []
    options = world.librdkafka("SCRAM-SHA-256") | {
        "sasl.username": user,
        "error_cb": lambda error: errors.append(error.name()),
        "reconnect.backoff.max.ms": 500,
    }
    of_consumer = {"group.id": user, "auto.offset.reset": "earliest", "enable.auto.commit": kind != "assigned"}
    found: list[Any] = []
    if kind in ("subscribed", "assigned"):
        consumer = Consumer(options | of_consumer)
        if kind == "subscribed":
            consumer.subscribe([user])
        else:
            consumer.assign([TopicPartition(user, 0, 0)])

        def look() -> None:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
    elif kind == "admin":
        late = AdminClient(options)

        def look() -> None:
            late.poll(0.1)
            with suppress(KafkaException):
                found.extend(late.list_topics(timeout=1).topics)
    else:
        producer = Producer(options | {"enable.idempotence": kind == "idempotent"})
        producer.produce(user, b"v", on_delivery=lambda error, _: found.append(error))

        def look() -> None:
            producer.poll(0.1)

    eventually(lambda: (look(), "_AUTHENTICATION" in errors)[1], "the refusal")
    assert found == []
    made = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), PASSWORD.encode()
    )
    admin.alter_user_scram_credentials([made])[user].result(20)
    if kind in ("subscribed", "assigned"):
        other = Producer(world.librdkafka("PLAIN"))
        other.produce(user, b"v")
        assert other.flush(20) == 0
    eventually(lambda: (look(), found)[1], "an answer")
    expected = {"subscribed": [b"v"], "assigned": [b"v"]}.get(kind, [None])
    assert user in found if kind == "admin" else found == expected
    if kind in ("subscribed", "assigned"):
        consumer.close()
