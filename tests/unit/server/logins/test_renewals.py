"""Sessions that are renewed and limited, by each mechanism; and requests at the wrong moment of a log-in."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from logyard.broker.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, ClientExchange
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.security.sasl.scram import ScramClient
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import AUTHENTICATE, HANDSHAKE, VERSIONS, OAuthBearerClient, SaslClient
from tests.unit.security.sasl.test_oauthbearer import jws

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SHORT://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SHORT:SASL_PLAINTEXT",
    "listener.name.short.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.short.plain.sasl.jaas.config": "PlainLoginModule required user_alice='wonder-land';",
    "connections.max.reauth.ms": "900",
    "connection.failed.authentication.delay.ms": "10",
    "sasl.server.max.receive.size": "1024",
}
pytestmark = pytest.mark.asyncio(loop_scope="module")
NONE, FAILED = 0, 58
Connect = Callable[[], Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    async with InsideBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as made:
        word = {
            name: ScramCredential.of_password(name, "wonder-land", 4096, b"salt").text()
            for name in (SCRAM_SHA_256, SCRAM_SHA_512)
        }
        made.components.configs.credentials.take("alice", word)
        yield made


@pytest.fixture
def connect(broker: InsideBroker) -> Connect:
    return lambda: SaslClient.connect(broker.port_of("SHORT"))


async def logged_in(client: SaslClient) -> int:
    code: int = (await client.log_in(PLAIN, PlainClient("alice", "wonder-land"))).error_code
    return code


def exchanges() -> dict[str, Callable[[], ClientExchange]]:
    return {
        PLAIN: lambda: PlainClient("alice", "wonder-land"),
        SCRAM_SHA_256: lambda: ScramClient(SCRAM_SHA_256, "alice", "wonder-land", "n"),
        SCRAM_SHA_512: lambda: ScramClient(SCRAM_SHA_512, "alice", "wonder-land", "n"),
        "OAUTHBEARER": lambda: OAuthBearerClient(jws({"sub": "carol", "exp": time.time() + 600})),
    }


# -- sessions


async def test_each_mechanism_renews_its_session_again_and_again(connect: Connect) -> None:
    async def renew(mechanism: str, exchange: Callable[[], ClientExchange]) -> None:
        client = await connect()
        for times in range(4):
            if times > 1:  # the first renewal may come at once, the later ones a second after the last
                await asyncio.sleep(1.05)
            answer = await client.log_in(mechanism, exchange())
            assert (answer.error_code, answer.session_lifetime_ms) == (NONE, 900)
            assert await client.is_served()

    await asyncio.gather(*(renew(*each) for each in exchanges().items()))


@pytest.mark.parametrize(("life_s", "least", "most"), [(600, 900, 900), (0.5, 1, 500)])
async def test_the_sooner_of_two_ends_counts(connect: Connect, life_s: float, least: int, most: int) -> None:
    client = await connect()
    token = jws({"sub": "carol", "exp": time.time() + life_s})
    answer = await client.log_in("OAUTHBEARER", OAuthBearerClient(token))
    assert least <= answer.session_lifetime_ms <= most
    assert await client.is_served()
    await asyncio.sleep(most / 1000 + 0.1)
    assert not await client.is_served()


async def test_a_token_of_somebody_else_does_not_renew(connect: Connect) -> None:
    client = await connect()
    for subject, code in (("carol", NONE), ("dave", FAILED)):
        token = jws({"sub": subject, "exp": time.time() + 600})
        assert (await client.log_in("OAUTHBEARER", OAuthBearerClient(token))).error_code == code
    assert await client.frame() is None


async def test_who_logged_in_by_the_old_handshake_is_cut_off_at_the_end(connect: Connect) -> None:
    """It cannot renew, and is not told of an end."""
    client = await connect()
    assert await client.log_in(PLAIN, PlainClient("alice", "wonder-land"), handshake=0) is not None
    assert await client.is_served()
    await asyncio.sleep(1.0)
    assert not await client.is_served()


# -- requests at the wrong moment


async def test_the_handshakes_versions_are_offered_and_others_close(connect: Connect) -> None:
    """Clients before 2.5 choose the highest version without asking: there are two, for ever."""
    client = await connect()
    offered = {api.api_key: (api.min_version, api.max_version) for api in (await client.ask(VERSIONS, 0)).api_keys}
    assert offered[HANDSHAKE] == (0, 1)
    for version in (2, 0x7FFF):
        client = await connect()
        client.send_frame(struct.pack(">hhih", HANDSHAKE, version, 1, 4) + b"hand" + struct.pack(">h", 5) + b"PLAIN")
        assert await client.frame() is None
    assert await logged_in(await connect()) == NONE


async def test_versions_are_not_asked_after_the_handshake(connect: Connect) -> None:
    client = await connect()
    assert (await client.ask(HANDSHAKE, 1, mechanism=PLAIN)).error_code == NONE
    answer = await client.ask(VERSIONS, 0)
    assert answer is None or answer.error_code == 34
    assert answer is None or await client.frame() is None
    assert await logged_in(await connect()) == NONE


@pytest.mark.parametrize("first", [VERSIONS, None])
@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("version", [0, 4])
async def test_versions_are_told_before_the_log_in(
    connect: Connect, first: int | None, handshake: int, version: int
) -> None:
    client = await connect()
    if first is not None:
        fields = {"client_software_name": "x", "client_software_version": "1"} if version else {}
        answer = await client.ask(VERSIONS, version, **fields)
        assert answer.error_code == NONE
        assert {HANDSHAKE, AUTHENTICATE} <= {api.api_key for api in answer.api_keys}
    assert await client.log_in(PLAIN, PlainClient("alice", "wonder-land"), handshake=handshake) is not None
    assert await client.is_served()


async def test_a_log_in_is_bounded_by_the_brokers_setting(connect: Connect) -> None:
    """A name of a mechanism and a token that are too long end the connection; the size is the broker's own key."""
    assert await logged_in(await connect()) == NONE
    client = await connect()
    assert await client.ask(HANDSHAKE, 1, mechanism="x" * 1024) is None
    client = await connect()
    await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
    assert await client.ask(AUTHENTICATE, 2, auth_bytes=b"\0alice\0" + b"x" * 1024) is None
    for garbage in (b"\x5a" * 1024, struct.pack(">i", 0x7FFFFFFF) + b"\0" * 1020):
        client = await connect()
        await client.ask(HANDSHAKE, 1, mechanism=PLAIN)
        client.send(struct.pack(">i", len(garbage)) + garbage)
        assert await client.frame() is None
    assert await logged_in(await connect()) == NONE
