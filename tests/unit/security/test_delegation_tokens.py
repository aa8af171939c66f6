"""What a broker knows of delegation tokens while changes come at once, or fail. Log-ins: tests/unit/server."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import structlog

from logyard.broker.security.delegation_tokens import DelegationTokens, TokenSettings
from logyard.broker.security.sasl.mechanism import SCRAM_SHA_256
from logyard.broker.znodes import delegation_tokens as znodes
from logyard.broker.znodes.delegation_tokens import TokenInfo
from logyard.broker.znodes.ops import OpResult, ZkCode, ZkOp, ZooKeeper


def token(token_id: str, expires_ms: int = 100) -> TokenInfo:
    return TokenInfo(token_id, "User:alice", "User:alice", (), 0, 1000, expires_ms)


async def test_a_token_that_is_gone_does_not_come_back_by_what_was_learned_before() -> None:
    gate = asyncio.Event()

    async def later(work: Callable[[], Any]) -> Any:
        await gate.wait()
        return work()

    tokens = DelegationTokens(TokenSettings(b"secret"), create_autospec(ZooKeeper), lambda: 0, later)
    learned = asyncio.ensure_future(tokens.take("one", token("one")))
    await asyncio.sleep(0)
    gone = asyncio.ensure_future(tokens.take("one", None))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(learned, gone)
    assert tokens.tokens() == []
    assert tokens.credential(SCRAM_SHA_256, "one") is None


async def test_one_token_that_cannot_be_deleted_leaves_the_other_expired_ones_to_be() -> None:
    async def at_once(work: Callable[[], Any]) -> Any:
        return work()

    async def multi(ops: list[ZkOp]) -> list[OpResult]:
        is_stuck = ops[0].path == znodes.path("stuck")
        return [OpResult(ZkCode.FAILED if is_stuck else ZkCode.OK), OpResult(ZkCode.OK)]

    zk = create_autospec(ZooKeeper)
    zk.multi = AsyncMock(side_effect=multi)
    tokens = DelegationTokens(TokenSettings(b"secret"), zk, lambda: 500, at_once)
    for name in ("stuck", "old", "living"):
        await tokens.take(name, token(name, expires_ms=900 if name == "living" else 100))
    with structlog.testing.capture_logs() as logs:
        tokens.start(0.01, lambda: True)
        async with asyncio.timeout(5):
            while "old" in tokens.ids():
                await asyncio.sleep(0.01)
    tokens.close()
    assert sorted(tokens.ids()) == ["living", "stuck"]
    assert logs[0]["event"] == "an expired token is still there"
