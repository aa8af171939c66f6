"""The watcher of delegation tokens: a znode that it may not read costs its own token alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.token_watcher import TokenWatcher
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import delegation_tokens
from logyard.broker.znodes.delegation_tokens import TokenInfo
from logyard.broker.znodes.ops import Create, SetData
from tests.support.guarded_zookeeper import GuardedZooKeeper


def token(name: str, expires_ms: int = 10) -> TokenInfo:
    return TokenInfo(name, "User:a", "User:a", (), 1, 20, expires_ms)


class Tokens:
    """What is known of tokens."""

    def __init__(self) -> None:
        self.known: dict[str, TokenInfo] = {}

    def ids(self) -> Sequence[str]:
        return list(self.known)

    async def take(self, token_id: str, token: TokenInfo | None) -> None:
        self.known.pop(token_id, None)
        if token is not None:
            self.known[token_id] = token

    async def has(self, *tokens: TokenInfo) -> None:
        async with asyncio.timeout(5):
            while sorted(self.known.values(), key=lambda known: known.token_id) != list(tokens):
                await asyncio.sleep(0.001)


class Watched:
    def __init__(self) -> None:
        tree = ZooKeeperTree(ManualClock(5_000))
        self.others, self.zk = MemoryZooKeeper(tree), GuardedZooKeeper(tree)
        self.tokens, self.notes = Tokens(), list[str]()
        self.watcher = TokenWatcher(self.zk, self.tokens, self.notes.append)

    async def make(self, made: TokenInfo) -> None:
        notice = Create(delegation_tokens.SEQUENCE_PREFIX, made.token_id.encode(), sequential=True)
        path, content = delegation_tokens.path(made.token_id), delegation_tokens.encode(made)
        for write in (Create(path, content), SetData(path, content)):
            if all(result.ok for result in await self.others.multi([write, notice])):
                return


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    for path in (delegation_tokens.ROOT, delegation_tokens.TOKENS, delegation_tokens.CHANGES):
        await made.others.multi([Create(path)])
    yield made
    await made.watcher.stop()


async def test_tokens_of_others_are_told(watched: Watched) -> None:
    await watched.make(token("a"))
    await watched.watcher.start()
    await watched.tokens.has(token("a"))
    await watched.make(token("b"))
    await watched.make(token("a", 11))
    await watched.tokens.has(token("a", 11), token("b"))


async def test_a_token_that_cannot_be_read_does_not_keep_the_broker_from_knowing_the_others(watched: Watched) -> None:
    await watched.make(token("a"))
    await watched.make(token("b"))
    watched.zk.refused.add(delegation_tokens.path("a"))
    await watched.watcher.start()
    await watched.tokens.has(token("b"))
    assert "the delegation token a stays as it was" in watched.notes[0]


async def test_a_token_that_cannot_be_read_any_more_stays_as_it_was(watched: Watched) -> None:
    await watched.make(token("a"))
    await watched.watcher.start()
    watched.zk.refused.add(delegation_tokens.path("a"))
    await watched.make(token("a", 11))
    await watched.make(token("b"))
    await watched.tokens.has(token("a"), token("b"))
