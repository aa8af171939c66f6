"""ZooKeeper in memory with znodes that this identity may not read."""

from collections.abc import Sequence

from logyard.broker.errors import LogyardError
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import Znode


class GuardedZooKeeper(MemoryZooKeeper):
    """A read of several is refused as a whole for one in `refused`, as a real session's is; `reads` counts them."""

    def __init__(self, tree: ZooKeeperTree, *refused: str) -> None:
        super().__init__(tree)
        self.refused = set(refused)
        self.reads = 0

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self.reads += 1
        found = await super().read(paths)
        for path in paths:
            if path in self.refused:
                raise LogyardError(f"ZooKeeper does not let this identity read {path}")
        return found
