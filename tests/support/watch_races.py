"""Many watches left at once while somebody else writes: no change may fall between the read and the watch."""

import asyncio
import random
from collections.abc import Callable

from logyard.broker.znodes.ops import Create, Delete, SetData, Watcher, WatchEvent, ZkOp, Znode, ZooKeeper

PATHS = [f"/races/{number}" for number in range(40)]


async def race(zk: ZooKeeper, writer: ZooKeeper, seed: int, disturb: Callable[[], None] = lambda: None) -> None:
    """Read and watch PATHS with `zk` while `writer` changes them at random; `disturb` is called amid that.

    Asserts that whatever is now other than what was read has called its watcher, and nobody was called twice.
    """
    rng = random.Random(seed)
    await writer.multi([Create("/races")])
    await writer.pipeline([[Create(path, b"0")] for path in PATHS if rng.random() < 0.7])
    await zk.read(["/races"])
    told: list[str] = []

    def watcher(event: WatchEvent, path: str) -> None:
        told.append(path)

    async def write() -> None:
        for _ in range(60):
            path = rng.choice(PATHS)
            # Refused where the znode is there already, or is not there: no matter.
            changes: list[ZkOp] = [Create(path, b"new"), SetData(path, b"%d" % rng.randrange(99)), Delete(path)]
            await writer.multi([rng.choice(changes)])
            if rng.random() < 0.1:
                disturb()

    targets: list[tuple[str, Watcher]] = [(path, watcher) for path in PATHS]
    read, _ = await asyncio.gather(zk.read_and_watch_all(targets), write())
    now = await zk.read(PATHS)
    missed = [
        path
        for path, before, after in zip(PATHS, read, now, strict=True)
        if _state(before) != _state(after) and path not in told
    ]
    assert missed == []
    assert len(told) == len(set(told))
    unchanged = [path for path in PATHS if path not in told]
    await writer.pipeline([[SetData(path, b"!")] for path in unchanged])
    await writer.pipeline([[Create(path)] for path in unchanged])
    await zk.read(["/races"])
    assert sorted(told) == sorted(PATHS), "a watch that had seen nothing was not left"


def _state(znode: Znode | None) -> tuple[int, int] | None:
    return None if znode is None else (znode.czxid, znode.version)
