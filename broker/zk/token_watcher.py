"""Follows delegation tokens: loads all of them once in each session, then follows /delegation_token/token_changes.

The watch is set before anything is loaded, so no change is missed. A znode that cannot be parsed is noted: there is no
such token then. One that ZooKeeper does not let us read is noted, too: its token stays as it is known.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.zk.session_watches import SessionWatch, children_or_creation
from logyard.broker.znodes import config_changes, delegation_tokens
from logyard.broker.znodes.delegation_tokens import TokenInfo
from logyard.broker.znodes.ops import Create, Delete, WatchEvent, Znode, ZooKeeper
from logyard.broker.znodes.reading import read_each


class KnownTokens(Protocol):
    """What is told of tokens."""

    def ids(self) -> Sequence[str]:
        """Return the ids of all tokens that were told."""
        ...

    async def take(self, token_id: str, token: TokenInfo | None) -> None:
        """Note a token; None: it is gone."""
        ...


OPS_PER_MULTI = 200


class TokenWatcher(SessionWatch):
    """Tells `tokens` of every token that is there, has changed, or is gone."""

    name = "token watcher"

    def __init__(self, zk: ZooKeeper, tokens: KnownTokens, note: Callable[[str], None]) -> None:
        super().__init__(zk)
        self._tokens = tokens
        self._note = note
        self._handled: dict[str, None] = {}

    async def _load(self, dirty: asyncio.Event) -> None:
        paths = (delegation_tokens.ROOT, delegation_tokens.TOKENS, delegation_tokens.CHANGES)
        await self._zk.pipeline([[Create(path)] for path in paths])  # mostly they exist
        names = await self._list_and_watch(dirty)
        self._handled = dict.fromkeys(names)
        (present,) = await self._zk.children([delegation_tokens.TOKENS])
        await self._tell(list(dict.fromkeys([*(present or []), *self._tokens.ids()])))

    async def _look_again(self, dirty: asyncio.Event) -> None:
        names = await self._list_and_watch(dirty)
        read = await read_each(self._zk, [delegation_tokens.change_path(name) for name in names])
        found = dict(zip(names, read, strict=True))
        fresh = [znode for name, znode in found.items() if name not in self._handled and znode is not None]
        await self._tell(list(dict.fromkeys(filter(None, map(self._changed_token, fresh)))))
        self._handled = dict.fromkeys(names)
        await self._purge(found)

    async def _list_and_watch(self, dirty: asyncio.Event) -> list[str]:
        def changed(event: WatchEvent, path: str) -> None:
            dirty.set()

        return await children_or_creation(self._zk, delegation_tokens.CHANGES, changed)

    def _changed_token(self, znode: Znode | LogyardError) -> str | None:
        try:
            if isinstance(znode, LogyardError):
                raise znode
            return delegation_tokens.decode_change(znode.data)
        except LogyardError as problem:
            self._note(str(problem))
            return None

    async def _tell(self, token_ids: Sequence[str]) -> None:
        znodes = await read_each(self._zk, [delegation_tokens.path(token_id) for token_id in token_ids])
        for token_id, znode in zip(token_ids, znodes, strict=True):
            token = None
            if isinstance(znode, LogyardError):
                self._note(f"the delegation token {token_id} stays as it was: {znode}")
                continue
            if znode is not None:
                try:
                    token = delegation_tokens.decode(znode.data, delegation_tokens.path(token_id))
                except CorruptData as problem:
                    self._note(str(problem))
            await self._tokens.take(token_id, token)

    async def _purge(self, notifications: Mapping[str, Znode | LogyardError | None]) -> None:
        """Delete notifications that are 15 minutes older than the newest one, by ZooKeeper's clock."""
        there = {name: znode.mtime_ms for name, znode in notifications.items() if isinstance(znode, Znode)}
        oldest_ms = max(there.values(), default=0) - config_changes.EXPIRATION_MS
        old = [name for name, mtime_ms in there.items() if mtime_ms < oldest_ms]
        for start in range(0, len(old), OPS_PER_MULTI):
            names = old[start : start + OPS_PER_MULTI]
            await self._zk.pipeline([[Delete(delegation_tokens.change_path(name))] for name in names])
