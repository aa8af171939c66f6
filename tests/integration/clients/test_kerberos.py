"""GSSAPI with a real KDC: a broker of ours that logs in to itself, stock clients, and what is refused."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from logyard.broker.client.link import Link
from logyard.broker.client.peer_login import PeerLogin, PeerRefusesLogin
from logyard.broker.client.peer_security import PeerSecurity
from logyard.broker.config.broker import ConfigProblems
from logyard.broker.replication.ports import LinkError
from logyard.broker.security.sasl.gssapi import GssapiClient, GssapiServer
from logyard.broker.security.sasl.kerberos import Kerberos, Keytab
from logyard.broker.security.sasl.kerberos_names import KerberosNames
from logyard.broker.security.sasl.mechanism import GSSAPI, LoginRefused
from tests.support.inside_broker import InsideBroker
from tests.support.kerberos import REALM, Realm, running_realm
from tests.support.lengths import IS_PROOF, some
from tests.support.real_cluster import eventually
from tests.support.sasl_client import AUTHENTICATE, HANDSHAKE, SaslClient

EVENTS = [b"%d" % number for number in range(20)]
RULES = r"RULE:[2:$1-$2](alice-.*)s/alice-(.*)/$1/,DEFAULT"
METADATA, FAILED = 3, 58


def settings(realm: Realm) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",  # by GSSAPI, Kafka's default
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": realm.jaas("kafka/localhost"),
    }


class World:
    """The realm, and one broker on a loop of its own, in a thread."""

    def __init__(self, directory: Path, realm: Realm) -> None:
        self.realm, self._directory = realm, directory
        self._started, self._ended = threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self.port = 0

    def __enter__(self) -> "World":
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        async with InsideBroker(self._directory, settings(self.realm)) as broker:
            self.port = broker.port_of("SASL_PLAINTEXT")
            self._broker = broker
            self._started.set()
            await self._ended.wait()

    def principals(self) -> set[str]:
        return {each.session.principal for each in self._broker.connections}

    def client(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"localhost:{self.port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": GSSAPI,
            "sasl_kerberos_service_name": "kafka",
        }

    def kerberos(self, principal: str) -> Kerberos:
        return Kerberos(Keytab(f"{principal}@{REALM}", str(self.realm.keytab(principal))))

    def exchange(self, principal: str, host: str = "localhost") -> GssapiClient:
        found = self.kerberos(principal)
        return GssapiClient(lambda: found.initiator("kafka", host))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        realm = stack.enter_context(running_realm(tmp_path_factory.mktemp("realm")))
        stack.enter_context(realm.inside("alice/admin"))
        yield stack.enter_context(World(tmp_path_factory.mktemp("broker"), realm))


def kafka_python(world: World, topic: str) -> list[bytes]:
    with KafkaProducer(**world.client(), acks="all") as producer:
        for event in EVENTS:
            producer.send(topic, event)
        producer.flush(30)
    with KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **world.client()) as consumer:
        found = [message.value for _, message in zip(EVENTS, consumer, strict=False)]
        assert "User:admin" in world.principals()
    return found


def aiokafka(world: World, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        async with AIOKafkaProducer(**world.client(), acks="all") as producer:
            for event in EVENTS:
                await producer.send_and_wait(topic, event)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **world.client()) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in EVENTS]

    return asyncio.run(run())


@pytest.mark.parametrize("client", [kafka_python, aiokafka])
def test_stock_clients(world: World, client: Callable[[World, str], list[bytes]]) -> None:
    topic = client.__name__
    admin = KafkaAdminClient(**world.client())
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    assert client(world, topic) == EVENTS


def test_the_broker_logs_in_to_itself(world: World) -> None:
    eventually(lambda: "User:kafka" in world.principals(), "the controller's link is logged in")


@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize(
    ("principal", "user"), [("bob", "User:bob"), ("alice/root", "User:root"), ("carol/x.y", "User:carol")]
)
async def test_the_ticket_says_who_it_is(world: World, principal: str, user: str, handshake: int) -> None:
    client = await SaslClient.connect(world.port)
    await client.log_in(GSSAPI, world.exchange(principal), handshake=handshake)
    assert await client.is_served()
    assert user in world.principals()
    await client.close()


async def test_a_first_frame_may_be_a_token(world: World) -> None:
    client, exchange = await SaslClient.connect(world.port), world.exchange("dora")
    token: bytes | None = exchange.first()
    while token is not None:
        client.send_frame(token)
        answer = await client.frame()
        assert answer is not None
        token = exchange.step(answer)
    assert await client.is_served()
    assert "User:dora" in world.principals()
    await client.close()


async def test_a_used_token_is_refused(world: World) -> None:
    first = world.exchange("bob").first()
    answers = []
    for _ in range(2):
        client = await SaslClient.connect(world.port)
        await client.ask(HANDSHAKE, 1, mechanism=GSSAPI)
        answers.append(await client.ask(AUTHENTICATE, 2, auth_bytes=first))
        await client.close()
    assert [answer.error_code for answer in answers] == [0, FAILED]
    assert "GSSAPI" in answers[1].error_message
    assert "replay" not in answers[1].error_message


async def test_a_principal_of_another_service_gets_no_further(world: World) -> None:
    world.realm.keytab("other/localhost")
    found = world.kerberos("bob")
    client = await SaslClient.connect(world.port)
    answer = await client.log_in(GSSAPI, GssapiClient(lambda: found.initiator("other", "localhost")))
    assert answer.error_code == FAILED
    await client.close()


def spoilt(token: bytes) -> Iterator[bytes]:
    """Each byte, or every third, cut off, left out, repeated and flipped."""
    for at in some(range(len(token))):
        yield token[:at]
        yield token[:at] + token[at + 1 :]
        yield token[: at + 1] + token[at:]
        for bit in (0x01, 0x80, 0xFF):
            yield token[:at] + bytes([token[at] ^ bit]) + token[at + 1 :]
    yield token + token


def test_every_byte_of_every_token(world: World) -> None:
    """Nobody gets in as somebody else, and nothing but a refusal is raised; the client's side the same."""
    server, names = world.kerberos("kafka/localhost"), KerberosNames(["DEFAULT"], REALM)
    alice = world.kerberos("alice")
    tried = let_in = 0

    def refused(work: Callable[[], object]) -> bool:
        nonlocal tried
        tried += 1
        with suppress(LoginRefused):
            work()
            return False
        return True

    def until(steps: int) -> tuple[GssapiServer, GssapiClient, bytes]:
        """Both sides after so many tokens of the client, and its next token."""
        accepting = GssapiServer(server.acceptor, names)
        initiating = GssapiClient(lambda: alice.initiator("kafka", "localhost"))
        token = initiating.first()
        for _ in range(steps):
            token = initiating.step(accepting.step(token)) or b""
        return accepting, initiating, token

    for steps in (0, 1, 2):
        for changed in spoilt(until(steps)[2] or b"\x00"):
            accepting, _, right = until(steps)
            let_in += not refused(partial(accepting.step, changed))
            assert accepting.identity is None or (accepting.identity.name, changed) == ("alice", right)
    for steps in (0, 1):
        accepting, _, token = until(steps)
        for changed in spoilt(accepting.step(token)):
            _, initiating, _ = until(steps)
            refused(partial(initiating.step, changed))
            assert not initiating.is_done
    assert tried > (4000 if IS_PROOF else 1200)
    assert let_in < tried / 10


def link(world: World, principal: str, host: str = "localhost") -> Link:
    async def elsewhere(work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    login = PeerLogin(GSSAPI, lambda _: world.exchange(principal, host), elsewhere)
    return Link("localhost", world.port, client_id="me", security=PeerSecurity(login=login))


async def test_links_and_a_kdc_that_is_gone(world: World) -> None:
    before = link(world, "kafka/localhost")
    assert (await before.request(METADATA, 9, {"topics": []})).controller_id == 1
    before.close()
    world.realm.stop()
    try:
        again = link(world, "kafka/localhost")  # its ticket is kept
        assert (await again.request(METADATA, 9, {"topics": []})).controller_id == 1
        again.close()
        new = link(world, "eve")
        with pytest.raises(PeerRefusesLogin, match=r"a log-in cannot begin: .*Cannot contact any KDC"):
            await new.request(METADATA, 9, {"topics": []})
    finally:
        world.realm.start()
    assert (await new.request(METADATA, 9, {"topics": []})).controller_id == 1
    new.close()
    unknown = link(world, "kafka/localhost", "elsewhere.test")
    with pytest.raises(LinkError, match="not found in Kerberos database"):
        await unknown.request(METADATA, 9, {"topics": []})
    unknown.close()


async def test_what_is_wrong_is_one_line_at_the_start(world: World, tmp_path: Path) -> None:
    key = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
    wrong = {
        "key table file": {key: settings(world.realm)[key].replace("kafka_localhost", "nowhere")},
        "No key table entry": {key: settings(world.realm)[key].replace("kafka/", "kafkas/")},
        "sasl.kerberos.service.name: not set": {"sasl.kerberos.service.name": ""},
        "sasl.kerberos.principal.to.local.rules: DEFAULT": {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1"},
    }
    for said, change in wrong.items():
        with pytest.raises(ConfigProblems) as problem:
            async with InsideBroker(tmp_path, {**settings(world.realm), **change}):
                pass
        line = str(problem.value)
        assert said.lower() in line.lower()
        assert "\n" not in line.strip() or len(problem.value.problems) == line.count("\n") + 1


def test_a_client_without_a_ticket_is_told_so(world: World) -> None:
    stranger = Kerberos(Keytab(f"nobody@{REALM}", "/nowhere.keytab"))
    with pytest.raises(LoginRefused, match="No credentials"):
        GssapiClient(lambda: stranger.initiator("kafka", "localhost")).first()
