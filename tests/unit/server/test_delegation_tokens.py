"""Delegation tokens over the wire: who may make, renew, end and see them, and log in with them."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.security.sasl.scram import ScramClient
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.znodes import delegation_tokens
from logyard.broker.znodes.delegation_tokens import TokenInfo
from logyard.broker.znodes.ops import Create, Delete
from tests.support.inside_broker import InsideBroker
from tests.support.longest_turn import longest_turn
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41  # "CreateDelegationToken", "RenewDelegationToken",
NAMES = ("ExpireDelegationToken", "DescribeDelegationToken")
NONE = ErrorCode.NONE
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.in.plain.sasl.jaas.config": "PlainLoginModule required user_a='x' user_b='x' user_c='x';",
    "connection.failed.authentication.delay.ms": "0",
    "delegation.token.secret.key": "the-brokers-secret",
    "delegation.token.max.lifetime.ms": "100000",
    "delegation.token.expiry.time.ms": "50000",
    "delegation.token.expiry.check.interval.ms": "50",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    async with InsideBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as started:
        yield started


async def user(broker: InsideBroker, name: str) -> SaslClient:
    client = await SaslClient.connect(broker.port_of("IN"))
    assert (await client.log_in(PLAIN, PlainClient(name, "x"))).error_code == NONE
    return client


async def created(client: SaslClient, *renewers: str, lifetime_ms: int = -1) -> Any:
    named = [{"principal_type": "User", "principal_name": name} for name in renewers]
    token = await client.ask(CREATE, 3, renewers=named, max_lifetime_ms=lifetime_ms)
    assert token.error_code == NONE
    return token


async def seen(client: SaslClient, *owners: str) -> list[str]:
    wanted = [{"principal_type": "User", "principal_name": name} for name in owners] if owners else None
    answer = await client.ask(DESCRIBE, 3, owners=wanted)
    assert answer.error_code == NONE
    return [token.token_id for token in answer.tokens]


def scram(mechanism: str, token_id: str, hmac: bytes) -> ScramClient:
    return ScramClient(mechanism, token_id, base64.b64encode(hmac).decode(), "nonce", (("tokenauth", "true"),))


async def test_a_token_logs_its_owner_in(broker: InsideBroker) -> None:
    token = await created(await user(broker, "a"))
    assert (token.principal_name, token.token_requester_principal_name, len(token.token_id)) == ("a", "a", 22)
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 50_000
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 100_000
    assert len(token.hmac) == 64
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        client = await SaslClient.connect(broker.port_of("IN"))
        answer = await client.log_in(mechanism, scram(mechanism, token.token_id, token.hmac))
        assert answer.error_code == NONE
        assert 0 < answer.session_lifetime_ms <= 50_000
        # Such a log-in makes no tokens.
        for key, fields in ((CREATE, {"renewers": []}), (RENEW, {"hmac": token.hmac}), (EXPIRE, {"hmac": token.hmac}),
                            (DESCRIBE, {"owners": None})):  # fmt: skip
            refused = await client.ask(key, 2, **fields)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    client = await SaslClient.connect(broker.port_of("IN"))
    answer = await client.log_in(SCRAM_SHA_256, scram(SCRAM_SHA_256, token.token_id, b"guess"))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_plaintext_has_no_tokens(broker: InsideBroker) -> None:
    client = await SaslClient.connect(broker.port_of("PLAINTEXT"))
    answer = await client.ask(CREATE, 3, renewers=[], max_lifetime_ms=1)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (await client.ask(DESCRIBE, 3, owners=None)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_owners_and_renewers_may_renew_and_end_a_token(broker: InsideBroker) -> None:
    a, b, c = [await user(broker, name) for name in "abc"]
    token = await created(a, "b")
    for client in (a, b):
        renewed = await client.ask(RENEW, 2, hmac=token.hmac, renew_period_ms=60_000)
        assert renewed.error_code == NONE
        assert renewed.expiry_timestamp_ms > token.expiry_timestamp_ms
    # Not beyond its longest life, and the default where no period is given.
    assert (await a.ask(RENEW, 1, hmac=token.hmac, renew_period_ms=10**9)).expiry_timestamp_ms == token.max_timestamp_ms
    assert (await a.ask(RENEW, 1, hmac=token.hmac, renew_period_ms=-1)).expiry_timestamp_ms < token.max_timestamp_ms
    for key, fields in ((RENEW, {"renew_period_ms": 1}), (EXPIRE, {"expiry_time_period_ms": -1})):
        assert (await c.ask(key, 2, hmac=token.hmac, **fields)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await c.ask(key, 2, hmac=b"no", **fields)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert (await b.ask(EXPIRE, 2, hmac=token.hmac, expiry_time_period_ms=-1)).error_code == NONE
    gone = await a.ask(EXPIRE, 2, hmac=token.hmac, expiry_time_period_ms=-1)
    assert (gone.error_code, gone.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
    client = await SaslClient.connect(broker.port_of("IN"))
    answer = await client.log_in(SCRAM_SHA_256, scram(SCRAM_SHA_256, token.token_id, token.hmac))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_who_sees_a_token(broker: InsideBroker) -> None:
    a, b, c = [await user(broker, name) for name in "abc"]

    class OnlyOwn(EverythingAllowed):
        is_open = False

        def allow(self, *_: Any, **__: Any) -> bool:
            return False

    token = (await created(a, "b")).token_id
    services = broker.components.services
    kept, services.rights = services.rights, OnlyOwn()
    try:
        for client, sees in ((a, True), (b, True), (c, False)):
            assert (token in await seen(client)) == sees
        assert token in await seen(a, "b")
        assert token not in await seen(a, "c")
        assert (await a.ask(DESCRIBE, 3, owners=[])).tokens == []
        refused = await a.ask(CREATE, 3, owner_principal_type="User", owner_principal_name="b", renewers=[])
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    finally:
        services.rights = kept
    assert token in await seen(c)
    other = await a.ask(CREATE, 3, owner_principal_type="User", owner_principal_name="b", renewers=[])
    assert (other.principal_name, other.token_requester_principal_name) == ("b", "a")
    wrong = await a.ask(CREATE, 2, renewers=[{"principal_type": "Group", "principal_name": "b"}])
    assert wrong.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_an_owner_is_a_user(broker: InsideBroker) -> None:
    """A log-in with the token would be one of `User:b`, and `Group:b` is whom the rights would be looked up for."""
    a = await user(broker, "a")
    for kind in ("Group", ""):
        wrong = await a.ask(CREATE, 3, owner_principal_type=kind, owner_principal_name="b", renewers=[])
        assert (wrong.error_code, wrong.token_id) == (ErrorCode.INVALID_PRINCIPAL_TYPE, "")


async def test_a_token_is_no_longer_than_zookeeper_takes(broker: InsideBroker) -> None:
    """ZooKeeper closes the broker's connection on a request above its jute.maxbuffer."""
    a = await user(broker, "a")
    renewers = [{"principal_type": "User", "principal_name": f"{number:0>200}"} for number in range(6000)]
    refused = await a.ask(CREATE, 3, renewers=renewers)
    assert (refused.error_code, refused.token_id) == (ErrorCode.INVALID_REQUEST, "")
    assert (await a.ask(CREATE, 3, renewers=renewers[:100])).error_code == NONE


@pytest.mark.parametrize("names", [["é" * 16_000] * 300, [""] * 300_000])
async def test_no_number_of_renewers_holds_others_up(broker: InsideBroker, names: list[str]) -> None:
    a = await user(broker, "a")
    frame = a.encode(CREATE, 3, renewers=[{"principal_type": "User", "principal_name": name} for name in names])
    async with longest_turn() as longest:
        a.send(frame)
        answer = await a.frame()
    assert answer is not None
    token = codec.decode_response(CREATE, 3, memoryview(answer))[1]
    assert (token.error_code, token.token_id) == (ErrorCode.INVALID_REQUEST, "")
    assert longest.seconds < 0.1


async def test_a_hundred_thousand_owners_hold_nobody_up(broker: InsideBroker) -> None:
    a = await user(broker, "a")
    for number in range(200):
        token = TokenInfo(f"many-{number}", "User:b", "User:b", (), 1, 2**50, 2**50)
        await broker.components.tokens.take(token.token_id, token)
    owners = [{"principal_type": "User", "principal_name": f"nobody-{number}"} for number in range(100_000)]
    frame = a.encode(DESCRIBE, 3, owners=owners)
    async with longest_turn() as longest:
        a.send(frame)
        assert await a.frame() is not None
    for number in range(200):
        await broker.components.tokens.take(f"many-{number}", None)
    assert longest.seconds < 2


async def test_tokens_of_very_many_renewers_are_described_in_turns(broker: InsideBroker) -> None:
    a = await user(broker, "a")
    renewers = tuple(f"User:{number}" for number in range(10_000))
    for number in range(40):
        token = TokenInfo(f"wide-{number}", "User:a", "User:a", renewers, 1, 2**50, 2**50)
        await broker.components.tokens.take(token.token_id, token)
    frame = a.encode(DESCRIBE, 3, owners=None)
    async with longest_turn() as longest:
        a.send(frame)
        answer = await a.frame()
    for number in range(40):
        await broker.components.tokens.take(f"wide-{number}", None)
    assert answer is not None
    assert len(answer) > 40 * 10_000 * 10
    assert longest.seconds < 0.05


async def test_expired_tokens_are_refused_and_deleted(broker: InsideBroker) -> None:
    a = await user(broker, "a")
    token = await created(a, lifetime_ms=1)
    await asyncio.sleep(0.01)
    answer = await a.ask(RENEW, 2, hmac=token.hmac, renew_period_ms=1000)
    assert answer.error_code in (ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    async with asyncio.timeout(10):
        while token.token_id in await seen(a):
            await asyncio.sleep(0.02)


async def test_tokens_of_other_brokers_are_known(broker: InsideBroker) -> None:
    zk, known = broker.components.services.zk, broker.components.tokens
    token = TokenInfo("x" * 22, "User:a", "User:b", ("User:c",), 1, 2**50, 2**50)
    notification = Create(delegation_tokens.SEQUENCE_PREFIX, token.token_id.encode(), sequential=True)
    await zk.multi([Create(delegation_tokens.path(token.token_id), delegation_tokens.encode(token)), notification])
    async with asyncio.timeout(10):
        while token not in known.tokens():
            await asyncio.sleep(0.01)
    await zk.multi([Delete(delegation_tokens.path(token.token_id)), notification])
    async with asyncio.timeout(10):
        while token in known.tokens():
            await asyncio.sleep(0.01)


async def test_without_a_secret_there_are_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {name: value for name, value in SETTINGS.items() if name != "delegation.token.secret.key"}
    async with InsideBroker(tmp_path_factory.mktemp("other"), settings) as other:
        client = await user(other, "a")
        for key, fields in ((CREATE, {"renewers": []}), (RENEW, {"hmac": b"x"}), (EXPIRE, {"hmac": b"x"}),
                            (DESCRIBE, {"owners": None})):  # fmt: skip
            assert (await client.ask(key, 2, **fields)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_znodes_are_kafkas() -> None:
    token = TokenInfo("id", "User:a b", "User:b", ("User:c",), 1, 3, 2)
    assert delegation_tokens.encode(token) == (
        b'{"version":3,"owner":"User%3Aa%20b","tokenRequester":"User%3Ab","renewers":["User%3Ac"],'
        b'"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"id"}'
    )
    assert delegation_tokens.decode(delegation_tokens.encode(token)) == token
    old = (
        delegation_tokens.encode(token)
        .replace(b'"version":3', b'"version":1')
        .replace(b'"tokenRequester":"User%3Ab",', b"")
    )
    assert delegation_tokens.decode(old).requester == "User:a b"
    for wrong in (b"", b"{}", old.replace(b'"version":1', b'"version":4')):
        with pytest.raises(CorruptData):
            delegation_tokens.decode(wrong)
    for wrong in (b"", b"a/b", b"x" * 300):
        with pytest.raises(CorruptData):
            delegation_tokens.decode_change(wrong)
