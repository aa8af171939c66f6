"""Follows /feature: reads it once in each session, then whenever it changes."""

import asyncio
from collections.abc import Callable

from logyard.broker.config.features import SUPPORTED
from logyard.broker.errors import CorruptData
from logyard.broker.metadata.features import FinalizedFeatures
from logyard.broker.zk.session_watches import SessionWatch
from logyard.broker.znodes import feature
from logyard.broker.znodes.ops import WatchEvent, Znode, ZooKeeper


class FeatureWatcher(SessionWatch):
    """Sets `features`. If the znode cannot be parsed, `note` gets a line, and `features` does not change."""

    name = "feature watcher"

    def __init__(self, zk: ZooKeeper, features: FinalizedFeatures, note: Callable[[str], None]) -> None:
        super().__init__(zk)
        self._features, self._note = features, note

    async def _load(self, dirty: asyncio.Event) -> None:
        def changed(event: WatchEvent, path: str) -> None:
            dirty.set()

        self._take(await self._zk.read_and_watch(feature.PATH, changed))

    _look_again = _load

    def _take(self, znode: Znode | None) -> None:
        if znode is None:
            self._features.epoch, self._features.levels = -1, {}
            return
        try:
            found = feature.decode(znode.data)
        except CorruptData as problem:
            self._note(f"finalized features stay as they were: {problem}")
            return
        levels = found.levels if found.status == feature.ENABLED else {}
        for name, level in levels.items():
            known = SUPPORTED.get(name)
            if known is None or not known.lowest <= level <= known.highest:
                self._note(f"{feature.PATH} finalizes {name} {level}, which this broker does not support")
        self._features.epoch, self._features.levels = znode.version, dict(levels)
