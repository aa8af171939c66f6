"""What one broker has of the ACLs, in a session of its own."""

import asyncio
from typing import Generic, TypeVar

from logyard.broker.security.acls.rules import Acls
from logyard.broker.security.acls.store import AclStore
from logyard.broker.security.acls.watcher import AclWatcher
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.znodes.acls import AclEntry, ResourcePattern

Zk = TypeVar("Zk", bound=MemoryZooKeeper)


class AclBroker(Generic[Zk]):
    def __init__(self, zk: Zk) -> None:
        self.zk = zk
        self.notes: list[str] = []
        self.known = Acls()
        self.store = AclStore(zk, self.known, self.notes.append, lambda bound: 0)
        self.watcher = AclWatcher(zk, self.store, self.notes.append)

    async def obeys(self, pattern: ResourcePattern, *entries: AclEntry) -> None:
        """Wait until these are the entries that it knows."""
        async with asyncio.timeout(5):
            while self.known.entries(pattern) != frozenset(entries):
                await asyncio.sleep(0.001)
