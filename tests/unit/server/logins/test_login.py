"""The log-in of a connection over real sockets to a whole broker: order, errors, delays, and sessions that end."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import structlog

from logyard.broker.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, ClientExchange
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.security.sasl.scram import ScramClient
from logyard.broker.server.logins import login
from logyard.broker.server.request import Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import AUTHENTICATE, HANDSHAKE, METADATA, VERSIONS, OAuthBearerClient, SaslClient
from tests.unit.security.sasl.test_oauthbearer import jws

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="wonder-land" user_bob="builder" user_dave="digger";'
)
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0,SHORT://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT",
    "listener.name.short.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.short.plain.sasl.jaas.config": JAAS,
    "listener.name.short.plain.connections.max.reauth.ms": "700",
    "listener.name.in.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.in.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "50",
    "listener.name.in.sasl.server.max.receive.size": "20000",
}
pytestmark = pytest.mark.asyncio(loop_scope="module")
NONE, UNSUPPORTED, ILLEGAL, FAILED = 0, 33, 34, 58


def now() -> float:
    """The loop's clock, which is the broker's too and counts no standstill (tests/support/steady_loop.py)."""
    return asyncio.get_running_loop().time()


class World:
    """One broker for all tests of this file. What was counted before a test is left out."""

    def __init__(self, broker: InsideBroker) -> None:
        self.broker = broker
        made = {
            name: ScramCredential.of_password(name, "wonder-land", 4096, b"salt").text()
            for name in (SCRAM_SHA_256, SCRAM_SHA_512)
        }
        broker.components.configs.credentials.take("alice", made)
        self.before: dict[str, int] = {}

    async def connect(self, listener: str = "IN") -> SaslClient:
        return await SaslClient.connect(self.broker.port_of(listener))

    async def logged_in(self, listener: str = "IN") -> SaslClient:
        client = await self.connect(listener)
        answer = await client.log_in(PLAIN, PlainClient("alice", "wonder-land"))
        assert answer.error_code == NONE
        return client

    def counters(self) -> dict[str, int]:
        return self.broker.components.services.login_counters.gauges()

    def counted(self, name: str) -> int:
        return self.counters()[f"logins_{name}"] - self.before[f"logins_{name}"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with InsideBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield World(broker)


LAST_WORD_S = login.LAST_WORD_S


@pytest.fixture
def world(one_world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(login, "LAST_WORD_S", 0.1)  # what is refused is so at the end of many tests
    one_world.before = one_world.counters()
    return one_world


async def test_every_mechanism_logs_in(world: World) -> None:
    token = jws({"sub": "carol", "exp": time.time() + 600})
    exchanges: dict[str, Callable[[], ClientExchange]] = {
        PLAIN: lambda: PlainClient("alice", "wonder-land"),
        SCRAM_SHA_256: lambda: ScramClient(SCRAM_SHA_256, "alice", "wonder-land", "nonce"),
        SCRAM_SHA_512: lambda: ScramClient(SCRAM_SHA_512, "alice", "wonder-land", "nonce"),
        "OAUTHBEARER": lambda: OAuthBearerClient(token),
    }
    for mechanism, exchange in exchanges.items():
        for version in (0, 1, 2):
            client = await world.connect()
            offered = await client.ask(VERSIONS, 3, client_software_name="x", client_software_version="1")
            assert {HANDSHAKE, AUTHENTICATE} <= {api.api_key for api in offered.api_keys}
            answer = await client.log_in(mechanism, exchange(), version)
            assert answer.error_code == NONE
            lifetime_ms = answer.session_lifetime_ms if version else 0
            assert (0 < lifetime_ms <= 600_000) == (mechanism == "OAUTHBEARER" and version > 0)
            assert await client.is_served()
            await client.close()
        old = await world.connect()
        assert await old.log_in(mechanism, exchange(), handshake=0) is not None
        assert await old.is_served()
    assert world.counted("succeeded") == 16
    assert world.counted("refused") == 0


async def test_handlers_see_the_user(world: World) -> None:
    seen: list[tuple[str, bool]] = []
    dispatcher = world.broker.components.dispatcher
    client = await world.connect()
    await client.log_in(SCRAM_SHA_256, ScramClient(SCRAM_SHA_256, "alice", "wonder-land", "n"))
    services = world.broker.components.services

    class Spy(EverythingAllowed):
        is_open = False

        def allow(self, session: Session, *_: Any, **__: Any) -> bool:
            seen.append((session.principal, session.is_token_login))
            return True

    services.rights = Spy()
    await client.ask(61, 0, topics=[{"name": "t", "partition_indexes": [0]}])
    assert dispatcher.counters[61].requests == 1
    assert set(seen) == {("User:alice", False)}


async def test_the_list_of_mechanisms_comes_with_the_refusal(world: World) -> None:
    client = await world.connect()
    begun = now()
    answer = await client.ask(HANDSHAKE, 1, mechanism="GSSAPI")
    assert answer.error_code == UNSUPPORTED
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    assert await client.frame() is None
    assert now() - begun >= 0.05


@pytest.mark.parametrize(("mechanism", "exchange", "told"), [
    (PLAIN, PlainClient("alice", "guess"), "Authentication failed: Invalid username or password"),
    (PLAIN, PlainClient("nobody", "guess"), "Authentication failed: Invalid username or password"),
    (SCRAM_SHA_256, ScramClient(SCRAM_SHA_256, "alice", "guess", "n"),
     "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
    (SCRAM_SHA_512, ScramClient(SCRAM_SHA_512, "nobody", "guess", "n"),
     "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ("OAUTHBEARER", OAuthBearerClient("bad"), '{"status":"invalid_token"}'),
])  # fmt: skip
async def test_a_refusal_waits_and_closes(world: World, mechanism: str, exchange: Any, told: str) -> None:
    client = await world.connect()
    begun = now()
    with structlog.testing.capture_logs() as logged:
        answer = await client.log_in(mechanism, exchange)
        # What is sent meanwhile is not looked at.
        client.send(client.encode(METADATA, 9, topics=[]))
        assert await client.frame() is None
    assert (answer.error_code, answer.error_message) == (FAILED, told)
    assert now() - begun >= 0.05
    (line,) = [line for line in logged if line["event"] == "log-in refused"]
    assert (line["peer"], line["mechanism"], line["listener"]) == ("127.0.0.1", mechanism, "IN")
    assert line.get("user") == {"OAUTHBEARER": None}.get(
        mechanism, "nobody" if b"nobody" in exchange.first() else "alice"
    )
    assert "guess" not in json.dumps(logged, default=str)
    assert world.counted("refused") == 1


async def test_a_user_of_another_mechanism_is_refused(world: World) -> None:
    """With a credential for one SCRAM mechanism nobody logs in by the other one."""
    made = ScramCredential.of_password(SCRAM_SHA_256, "wonder-land", 4096, b"salt").text()
    world.broker.components.configs.credentials.take("carol", {SCRAM_SHA_256: made})
    codes = []
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        client = await world.connect()
        answer = await client.log_in(mechanism, ScramClient(mechanism, "carol", "wonder-land", "n"))
        codes.append(answer.error_code)
        await client.close()
    assert codes == [NONE, FAILED]


async def test_the_end_does_not_come_together_with_the_refusal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients such as kafka-python throw away an answer that they read together with the end."""
    monkeypatch.setattr(login, "LAST_WORD_S", LAST_WORD_S)
    client = await world.connect()
    await client.log_in(PLAIN, PlainClient("alice", "guess"))
    answered = now()
    assert await client.frame() is None
    assert now() - answered > 0.5


async def test_a_refusal_after_the_old_handshake_only_closes(world: World) -> None:
    client = await world.connect()
    assert await client.log_in(PLAIN, PlainClient("alice", "guess"), handshake=0) is None


async def test_requests_before_the_log_in_close_the_connection(world: World) -> None:
    fields: dict[int, dict[str, Any]] = {
        METADATA: {"topics": []},
        AUTHENTICATE: {"auth_bytes": b"\0alice\0wonder-land"},
    }
    for key, version in ((METADATA, 9), (AUTHENTICATE, 2)):
        client = await world.connect()
        assert await client.ask(key, version, **fields[key]) is None
    client = await world.connect()
    assert await client.ask(VERSIONS, 0) is not None
    assert await client.ask(VERSIONS, 0) is None


async def test_versions_may_be_asked_again_after_an_error(world: World) -> None:
    client = await world.connect()
    client.send_frame(b"\0\x12\0\x63\0\0\0\x01\0\x04hand\0")  # v99
    answer = await client.frame()
    assert answer is not None
    assert answer[4:6] == b"\0\x23"
    assert (await client.ask(VERSIONS, 3, client_software_name="!", client_software_version="1")).error_code == 42
    assert (await client.ask(VERSIONS, 3, client_software_name="x", client_software_version="1")).error_code == NONE
    assert (await client.log_in(PLAIN, PlainClient("alice", "wonder-land"))).error_code == NONE


async def test_a_request_in_the_middle_is_refused_in_its_own_form(world: World) -> None:
    client = await world.connect()
    await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
    answer = await client.ask(10, 3, key="group", key_type=0)
    assert answer.error_code == ILLEGAL
    assert await client.frame() is None
    fields: dict[int, dict[str, Any]] = {METADATA: {"topics": []}, HANDSHAKE: {"mechanism": PLAIN}}
    for key, version in ((METADATA, 9), (HANDSHAKE, 1)):
        client = await world.connect()
        await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
        refused = await client.ask(key, version, **fields[key])
        assert refused is None or refused.error_code == ILLEGAL
        if refused is not None:
            assert await client.frame() is None


@pytest.mark.parametrize("garbage", [
    b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"\0\0\0\0", b"\0\0\0\x01\x60",
    b"\0\0\0\x08\x60\x82\x02\x41\x06\x09\x2a\x86", b"\0\0\x4e\x21" + b"\0" * 20001, b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
])  # fmt: skip
async def test_garbage_closes_the_connection(world: World, garbage: bytes) -> None:
    client = await world.connect()
    client.send(garbage)
    assert await client.frame() is None


async def test_after_the_log_in_both_are_refused(world: World) -> None:
    for client in (await world.logged_in(), await world.connect("PLAINTEXT")):
        assert (await client.ask(HANDSHAKE, 1, mechanism=PLAIN)).error_code == ILLEGAL
        answer = await client.ask(AUTHENTICATE, 2, auth_bytes=b"\0alice\0wonder-land")
        assert answer.error_code == ILLEGAL
        assert await client.is_served()


async def test_large_frames_are_for_those_who_are_logged_in(world: World) -> None:
    client = await world.connect()
    await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
    assert await client.ask(AUTHENTICATE, 2, auth_bytes=b"\0alice\0" + b"x" * 19_000) is not None
    client = await world.connect()
    await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
    assert await client.ask(AUTHENTICATE, 2, auth_bytes=b"\0alice\0" + b"x" * 21_000) is None
    client = await world.logged_in()
    assert await client.ask(METADATA, 9, topics=[{"name": "t" * 200} for _ in range(150)]) is not None


async def test_a_session_ends_and_is_renewed(world: World) -> None:
    client = await world.connect("SHORT")
    exchange = PlainClient("alice", "wonder-land")
    assert (await client.log_in(PLAIN, exchange)).session_lifetime_ms == 700
    again = await client.log_in(PLAIN, exchange)
    assert (again.error_code, again.session_lifetime_ms) == (NONE, 700)
    # Not twice within a second.
    assert (await client.ask(HANDSHAKE, 1, mechanism=PLAIN)).error_code == ILLEGAL
    assert await client.is_served()
    await asyncio.sleep(1.05)
    # A session can be renewed after its end too.
    assert (await client.log_in(PLAIN, exchange)).error_code == NONE
    assert await client.is_served()
    assert world.counted("renewed") == 2
    await asyncio.sleep(0.8)
    assert not await client.is_served()
    assert world.counted("expired") == 1


async def test_a_renewal_has_the_same_mechanism_and_user(world: World) -> None:
    client = await world.logged_in("SHORT")
    answer = await client.log_in(PLAIN, PlainClient("bob", "builder"))
    assert (answer.error_code, answer.error_message) == (
        FAILED,
        "Cannot change principals during re-authentication from User.alice: User.bob",
    )
    assert await client.frame() is None
    client = await world.logged_in("SHORT")
    assert (await client.ask(HANDSHAKE, 1, mechanism=SCRAM_SHA_256)).error_code == NONE
    assert await client.ask(AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=n") is None
    client = await world.logged_in("SHORT")
    answer = await client.log_in(PLAIN, PlainClient("alice", "guess"))
    assert answer.error_code == FAILED
    client = await world.logged_in("SHORT")
    await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
    assert not await client.is_served()


async def test_a_tokens_life_limits_the_session(world: World) -> None:
    client = await world.connect()
    token = jws({"sub": "carol", "exp": time.time() + 1})
    assert 0 < (await client.log_in("OAUTHBEARER", OAuthBearerClient(token))).session_lifetime_ms <= 1000
    assert await client.is_served()
    await asyncio.sleep(1.1)
    assert not await client.is_served()


async def test_who_guesses_is_slowed(world: World) -> None:
    async def guess(user: str) -> float:
        client = await world.connect()
        begun = now()
        assert (await client.log_in(PLAIN, PlainClient(user, "guess"))).error_code == FAILED
        return now() - begun

    with structlog.testing.capture_logs() as logged:
        await asyncio.gather(*(guess("dave") for _ in range(24)))
    lines = [line for line in logged if line["event"] == "log-in refused"]
    assert [line["within_a_minute"] for line in lines] == [*range(1, 11), 16]
    assert {(line["user"], line["peer"]) for line in lines} == {("dave", "127.0.0.1")}
    assert await guess("dave") > 0.7
    # Nobody else waits.
    assert await guess("carol") < 0.7
    client = await world.connect()
    assert (await client.log_in(PLAIN, PlainClient("dave", "digger"))).error_code == NONE


async def test_a_connection_that_goes_leaves_no_timer(world: World) -> None:
    client = await world.connect()
    await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
    client.send(client.encode(AUTHENTICATE, 2, auth_bytes=b"\0alice\0guess"))
    await client.close()
    await asyncio.sleep(0.2)
    assert world.counted("refused") == 1
    assert (await (await world.logged_in()).ask(METADATA, 9, topics=[])) is not None
