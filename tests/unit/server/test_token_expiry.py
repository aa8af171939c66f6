"""Tokens that are ended: at once, sooner than they would be, after they have expired; and the sessions they began."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode
from logyard.broker.security.sasl.mechanism import PLAIN, SCRAM_SHA_256
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.security.sasl.scram import ScramClient
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
CREATE, RENEW, EXPIRE, DESCRIBE, ALTER_USERS = 38, 39, 40, 41, 51
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.in.plain.sasl.jaas.config": "PlainLoginModule required user_a='x';",
    "delegation.token.secret.key": "the-brokers-secret",
    # Nothing is swept while these tests run.
    "delegation.token.expiry.check.interval.ms": "3600000",
    "delegation.token.max.lifetime.ms": "100000",
    "delegation.token.expiry.time.ms": "50000",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    async with InsideBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def user(broker: InsideBroker) -> SaslClient:
    client = await SaslClient.connect(broker.port_of("IN"))
    assert (await client.log_in(PLAIN, PlainClient("a", "x"))).error_code == ErrorCode.NONE
    return client


async def created(user: SaslClient, lifetime_ms: int = -1) -> Any:
    token = await user.ask(CREATE, 3, renewers=[], max_lifetime_ms=lifetime_ms)
    assert token.error_code == ErrorCode.NONE
    return token


async def ended(user: SaslClient, hmac: bytes, period_ms: int) -> tuple[int, int]:
    answer = await user.ask(EXPIRE, 2, hmac=hmac, expiry_time_period_ms=period_ms)
    return answer.error_code, answer.expiry_timestamp_ms


async def ids(user: SaslClient) -> set[str]:
    return {token.token_id for token in (await user.ask(DESCRIBE, 3, owners=None)).tokens}


async def test_no_secret_is_no_tokens_secret(user: SaslClient) -> None:
    assert await ended(user, b"", 0) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


async def test_a_token_is_ended_sooner(user: SaslClient) -> None:
    token = await created(user)
    error, expires_ms = await ended(user, token.hmac, 20_000)
    assert error == ErrorCode.NONE
    assert token.issue_timestamp_ms < expires_ms < token.expiry_timestamp_ms
    # Later than its longest life is not possible.
    assert await ended(user, token.hmac, 10**9) == (ErrorCode.NONE, token.max_timestamp_ms)
    assert (await ended(user, token.hmac, -1))[0] == ErrorCode.NONE
    assert token.token_id not in await ids(user)


async def test_an_expired_token_may_only_be_deleted(user: SaslClient) -> None:
    """Who asks for less time is told that there is none; who deletes it, as Kafka does, is not refused."""
    token = await created(user, lifetime_ms=1)
    await asyncio.sleep(0.02)
    assert await ended(user, token.hmac, 1) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
    renewed = await user.ask(RENEW, 2, hmac=token.hmac, renew_period_ms=1000)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
    error, ended_ms = await ended(user, token.hmac, -1)
    assert error == ErrorCode.NONE
    assert ended_ms > token.expiry_timestamp_ms
    assert token.token_id not in await ids(user)


def by_token(token: Any) -> ScramClient:
    password = base64.b64encode(token.hmac).decode()
    return ScramClient(SCRAM_SHA_256, token.token_id, password, "nonce", (("tokenauth", "true"),))


async def test_a_session_is_renewed_by_its_token_until_that_ends(broker: InsideBroker, user: SaslClient) -> None:
    token = await created(user, lifetime_ms=4000)  # two log-ins take less, on a busy machine too
    client = await SaslClient.connect(broker.port_of("IN"))
    first = await client.log_in(SCRAM_SHA_256, by_token(token))
    await asyncio.sleep(0.05)
    again = await client.log_in(SCRAM_SHA_256, by_token(token))
    assert (first.error_code, again.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert 0 < again.session_lifetime_ms < first.session_lifetime_ms <= 4000
    assert await client.is_served()
    await asyncio.sleep(4.1)
    assert not await client.is_served()


async def test_a_token_that_was_deleted_renews_nothing(broker: InsideBroker, user: SaslClient) -> None:
    token = await created(user)
    client = await SaslClient.connect(broker.port_of("IN"))
    assert (await client.log_in(SCRAM_SHA_256, by_token(token))).error_code == ErrorCode.NONE
    assert (await ended(user, token.hmac, -1))[0] == ErrorCode.NONE
    assert (await client.log_in(SCRAM_SHA_256, by_token(token))).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.frame() is None


async def test_who_has_a_token_may_make_users(broker: InsideBroker, user: SaslClient) -> None:
    """Only tokens are not to be had by a token."""
    token = await created(user)
    client = await SaslClient.connect(broker.port_of("IN"))
    assert (await client.log_in(SCRAM_SHA_256, by_token(token))).error_code == ErrorCode.NONE
    made = {"name": "new", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    async with asyncio.timeout(20):
        while True:
            (answer,) = (await client.ask(ALTER_USERS, 0, deletions=[], upsertions=[made])).results
            if answer.error_code != ErrorCode.NOT_CONTROLLER:
                break
            await asyncio.sleep(0.02)
    assert answer.error_code == ErrorCode.NONE
