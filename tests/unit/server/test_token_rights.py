"""Tokens are made for others and seen by ACLs: on the token, and on the user that owns it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from logyard.broker.errors import ErrorCode
from logyard.broker.security.sasl.mechanism import PLAIN
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.znodes.acls import AclEntry, Operation, Permission, ResourcePattern, ResourceType
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
USERS = ("a", "b", "c", "d", "e")
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.in.plain.sasl.jaas.config": "x.PlainLoginModule required "
    + " ".join(f"user_{name}='x'" for name in USERS)
    + ";",
    "delegation.token.secret.key": "the-brokers-secret",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InsideBroker]:
    async with InsideBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as started:
        yield started


async def users(broker: InsideBroker) -> list[SaslClient]:
    made = []
    for name in USERS:
        client = await SaslClient.connect(broker.port_of("IN"))
        assert (await client.log_in(PLAIN, PlainClient(name, "x"))).error_code == ErrorCode.NONE
        made.append(client)
    return made


def principal(name: str) -> dict[str, str]:
    return {"principal_type": "User", "principal_name": name}


async def make(client: SaslClient, *renewers: str, owner: str | None = None) -> Any:
    of = {} if owner is None else {"owner_principal_type": "User", "owner_principal_name": owner}
    return await client.ask(CREATE, 3, renewers=[principal(name) for name in renewers], max_lifetime_ms=-1, **of)


async def seen(client: SaslClient, *owners: str) -> set[str]:
    """The owners of the tokens that are shown; without owners in the request all are asked for."""
    answer = await client.ask(DESCRIBE, 3, owners=[principal(name) for name in owners] if owners else None)
    assert answer.error_code == ErrorCode.NONE
    return {token.principal_name for token in answer.tokens}


def allow(broker: InsideBroker, resource: ResourceType, name: str, operation: Operation) -> None:
    known = broker.components.authorization.acls
    assert known is not None
    known.known.put(ResourcePattern(resource, name), [AclEntry("User:a", Permission.ALLOW, operation)])


async def test_tokens_are_made_and_seen_by_rights(broker: InsideBroker) -> None:
    a, b, c, d, _ = await users(broker)
    refused = await make(a, owner="e")
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    allow(broker, ResourceType.USER, "User:e", Operation.CREATE_TOKENS)
    for_another = await make(a, owner="e")
    assert (for_another.error_code, for_another.principal_name) == (ErrorCode.NONE, "e")
    assert for_another.token_requester_principal_name == "a"
    allow(broker, ResourceType.USER, "User:e", Operation.READ)  # the right is of no use any more
    assert (await make(a, "b")).error_code == ErrorCode.NONE
    of_c, _ = await make(c, "a"), await make(d, "b")
    # Its own, those that it may renew, those that it asked for.
    assert await seen(a) == {"a", "c", "e"}
    assert await seen(b) == {"a", "d"}
    assert await seen(d, "d") == {"d"}
    assert await seen(a, "nobody") == set()
    assert await seen(a, "a", "d") == {"a", "c", "e"}  # of one of them in these three ways, and shown to a
    assert await seen(b, "b") == {"a", "d"}
    found = [token.token_id for token in (await d.ask(DESCRIBE, 3, owners=None)).tokens]
    allow(broker, ResourceType.DELEGATION_TOKEN, found[0], Operation.DESCRIBE)
    assert await seen(a, "a", "d") == {"a", "c", "d", "e"}
    allow(broker, ResourceType.DELEGATION_TOKEN, found[0], Operation.READ)
    allow(broker, ResourceType.USER, "User:d", Operation.DESCRIBE_TOKENS)
    assert await seen(a) == {"a", "c", "d", "e"}
    # Who is neither owner nor renewer ends nothing, although it sees it.
    gone = await b.ask(EXPIRE, 2, hmac=of_c.hmac, expiry_time_period_ms=-1)
    assert gone.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    for api, period in ((RENEW, "renew_period_ms"), (EXPIRE, "expiry_time_period_ms")):
        answer = await a.ask(api, 2, hmac=of_c.hmac, **{period: -1})
        assert answer.error_code == ErrorCode.NONE
