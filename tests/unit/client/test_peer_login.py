"""Links that log in: against a scripted broker, and against a whole one of ours."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from logyard.broker.client.link import Link
from logyard.broker.client.peer_login import FIRST_CORRELATION_ID, PeerLogin, PeerRefusesLogin
from logyard.broker.client.peer_security import PeerSecurity, peer_login
from logyard.broker.config.broker import BrokerConfig, ConfigProblems
from logyard.broker.replication.ports import LinkError
from logyard.broker.security.sasl.mechanism import PLAIN, SCRAM_SHA_256
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.security.sasl.scram import ScramClient
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.inside_broker import InsideBroker
from tests.support.scripted_broker import Answer, Asked, HangUp, ScriptedBroker

METADATA, HANDSHAKE, VERSIONS, AUTHENTICATE = 3, 17, 18, 36
BASE = "zookeeper.connect=z:2181\nbroker.id=1\nlog.dirs=/x\nlisteners=IN://h:9\ninter.broker.listener.name=IN\n"
SASL = BASE + "listener.security.protocol.map=IN:SASL_PLAINTEXT\nsasl.enabled.mechanisms=PLAIN\n"
MODULE = 'listener.name.in.plain.sasl.jaas.config=x.PlainLoginModule required username="me" password="mine";\n'


async def here(work: Callable[[], Any]) -> Any:
    return work()


def login(password: str = "mine") -> PeerLogin:
    return PeerLogin(PLAIN, lambda _: PlainClient("me", password), here)


class Peer:
    """Answers as a broker with SASL would; the script of one test changes its fields."""

    def __init__(self) -> None:
        self.password = "mine"
        self.lifetime_ms = 0
        self.mechanisms = ["PLAIN"]
        self.versions = 2

    def __call__(self, asked: Asked) -> Answer:
        match asked.api_key:
            case 18:
                return {"api_keys": [{"api_key": 36, "min_version": 0, "max_version": self.versions}]}
            case 17:
                known = asked.body.mechanism in self.mechanisms
                return {"error_code": 0 if known else 33, "mechanisms": self.mechanisms}
            case 36:
                if bytes(asked.body.auth_bytes) != f"\0me\0{self.password}".encode():
                    return {"error_code": 58, "error_message": "no", "auth_bytes": b""}
                return {"error_code": 0, "auth_bytes": b"", "session_lifetime_ms": self.lifetime_ms}
        return {"cluster_id": "c"}


async def asked_by(link: Link) -> str:
    cluster_id: str = (await link.request(METADATA, 9, {"topics": []})).cluster_id
    return cluster_id


async def test_a_link_logs_in_before_its_first_request() -> None:
    async with ScriptedBroker(Peer()) as broker:
        link = Link("127.0.0.1", broker.port, client_id="me", security=PeerSecurity(login=login()))
        assert await asyncio.gather(*(asked_by(link) for _ in range(5))) == ["c"] * 5
        assert [asked.api_key for asked in broker.asked] == [VERSIONS, HANDSHAKE, AUTHENTICATE, *[METADATA] * 5]
        assert [asked.correlation_id for asked in broker.asked][:3] == [FIRST_CORRELATION_ID + n for n in range(3)]
        assert (broker.asked[0].version, broker.asked[1].version, broker.asked[2].version) == (0, 1, 2)
        assert broker.connections == 1
        link.close()


async def test_a_session_is_renewed_before_its_end() -> None:
    peer = Peer()
    peer.lifetime_ms, peer.versions = 200, 1
    async with ScriptedBroker(peer) as broker:
        link = Link("127.0.0.1", broker.port, client_id="me", security=PeerSecurity(login=login()))
        await asked_by(link)
        await asyncio.sleep(0.18)
        assert await asyncio.gather(*(asked_by(link) for _ in range(3))) == ["c"] * 3
        first = [VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA]
        assert [asked.api_key for asked in broker.asked] == [*first, HANDSHAKE, AUTHENTICATE, *[METADATA] * 3]
        assert {asked.version for asked in broker.asked if asked.api_key == AUTHENTICATE} == {1}
        assert broker.connections == 1
        link.close()


async def test_a_refused_log_in_is_one_line_and_a_pause() -> None:
    peer = Peer()
    peer.password = "other"
    async with ScriptedBroker(peer) as broker:
        link = Link("127.0.0.1", broker.port, client_id="me", security=PeerSecurity(login=login()))
        with structlog.testing.capture_logs() as logged:
            with pytest.raises(PeerRefusesLogin, match="refuses the log-in: no"):
                await asked_by(link)
            assert not link.connected
            begun = asyncio.get_running_loop().time()
            with pytest.raises(LinkError):
                await asked_by(link)
            assert asyncio.get_running_loop().time() - begun >= 0.5
        assert [(line["mechanism"], line["why"]) for line in logged] == [("PLAIN", "no")]
        peer.password = "mine"
        assert await asked_by(link) == "c"
        link.close()


@pytest.mark.parametrize(("change", "why"), [
    ({"mechanisms": ["GSSAPI", "X"]}, "it enables GSSAPI, X, not PLAIN"),
    ({"versions": -1}, "does not serve SaslAuthenticate"),
])  # fmt: skip
async def test_other_refusals(change: dict[str, Any], why: str) -> None:
    peer = Peer()
    for name, value in change.items():
        setattr(peer, name, value)
    async with ScriptedBroker(peer) as broker:
        link = Link("127.0.0.1", broker.port, client_id="me", security=PeerSecurity(login=login()))
        with pytest.raises(PeerRefusesLogin, match=why):
            await asked_by(link)
        link.close()


async def test_a_broker_that_hangs_up_is_no_refusal() -> None:
    peer = Peer()
    hang_up = {HANDSHAKE: True}

    def script(asked: Asked) -> Answer | Awaitable[Answer]:
        return HangUp() if hang_up.get(asked.api_key) else peer(asked)

    async with ScriptedBroker(script) as broker:
        link = Link("127.0.0.1", broker.port, client_id="me", security=PeerSecurity(login=login()))
        with pytest.raises(LinkError) as caught:
            await asked_by(link)
        assert not isinstance(caught.value, PeerRefusesLogin)
        hang_up.clear()
        assert await asked_by(link) == "c"
        link.close()


async def test_our_own_broker_lets_us_in(tmp_path: Path) -> None:
    settings = {
        "listeners": "IN://127.0.0.1:0",
        "listener.security.protocol.map": "IN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "IN",
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "listener.name.in.plain.sasl.jaas.config": (
            'PlainLoginModule required username="me" password="mine" user_me="mine";'
        ),
    }
    async with InsideBroker(tmp_path, settings) as broker:
        credential = ScramCredential.of_password(SCRAM_SHA_256, "p", 4096, b"salt")
        broker.components.configs.credentials.take("b", {SCRAM_SHA_256: credential.text()})
        await broker.create_topic("t", 1)  # which takes requests of the controller to its broker
        assert broker.components.services.login_counters.refused == 0
        scram = PeerLogin(SCRAM_SHA_256, lambda _: ScramClient(SCRAM_SHA_256, "b", "p", "nonce"), here)
        link = Link("127.0.0.1", broker.port, client_id="me", security=PeerSecurity(login=scram))
        assert (await link.request(METADATA, 9, {"topics": []})).controller_id == 1
        link.close()
        other = Link("127.0.0.1", broker.port, client_id="me", security=PeerSecurity(login=login("wrong")))
        with pytest.raises(PeerRefusesLogin, match="Invalid username or password"):
            await other.request(METADATA, 9, {"topics": []})


def login_of(text: str) -> Any:
    return peer_login(BrokerConfig.parse(text), "IN", here, lambda: 0)


def test_the_servers_module_says_who_this_broker_is() -> None:
    found = login_of(f"{SASL}sasl.mechanism.inter.broker.protocol=PLAIN\n{MODULE}")
    assert found.new_exchange("h").first() == b"\0me\0mine"
    assert "mine" not in repr(found)
    scram = SASL.replace("=PLAIN", "=SCRAM-SHA-512") + "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
    scram += MODULE.replace(".plain.", ".scram-sha-512.").replace("Plain", "Scram")
    assert isinstance(login_of(scram).new_exchange("h"), ScramClient)
    assert login_of(BASE + "listener.security.protocol.map=IN:PLAINTEXT\n") is None


@pytest.mark.parametrize(("text", "problem"), [
    (SASL, "IN does not enable GSSAPI"),
    (f"{SASL}sasl.mechanism.inter.broker.protocol=MD5\n", "not served between"),
    (SASL.replace("=PLAIN", "=GSSAPI"), r"listener.name.in.gssapi.sasl.jaas.config: not set; Krb5LoginModule"),
    (f"{SASL}sasl.mechanism.inter.broker.protocol=PLAIN\n", r"listener.name.in.plain.sasl.jaas.config: brokers log in"),
    (f"{SASL}sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256\n", "IN does not enable SCRAM-SHA-256"),
    (f"{SASL}sasl.mechanism.inter.broker.protocol=PLAIN\n{MODULE.replace('username', 'user')}", "`username`"),
    (f"{SASL}sasl.mechanism.inter.broker.protocol=PLAIN\n{MODULE.replace('Plain', 'Scram')}", "PlainLoginModule is"),
    (f"{SASL}sasl.mechanism.inter.broker.protocol=PLAIN\n{MODULE.replace(';', '')}", "';'"),
])  # fmt: skip
def test_problems_name_the_key_and_no_secret(text: str, problem: str) -> None:
    with pytest.raises(ConfigProblems, match=problem) as caught:
        login_of(text)
    assert "mine" not in str(caught.value)
