"""`ZnodeClient` onto the in-memory ZooKeeper: the twin of kazoo for the commands that work on znodes."""

import json
from collections.abc import Sequence
from typing import Any

from logyard.broker.clock import ManualClock
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import Create, OpResult, WatchEvent, ZkOp, Znode
from logyard.broker.znodes.paths import PERSISTENT, ancestors


class TreeZnodes:
    """One session with a tree of its own, which has what every broker makes at start.

    `unheard`: znodes that the server of this session does not know before `sync`.
    """

    def __init__(self) -> None:
        self.unheard: set[str] = set()
        self.tree = ZooKeeperTree(ManualClock())
        self._session = self.tree.open_session(self)
        for path in PERSISTENT:
            self.make(path)

    def new_session(self) -> None:
        """End this session, and its ephemeral znodes with it, and open another."""
        self.tree.close_session(self._session)
        self._session = self.tree.open_session(self)

    def watch_fired(self, kind: object, event: WatchEvent, path: str) -> None: ...

    def session_expired(self) -> None: ...

    def close(self) -> None: ...

    def children(self, path: str) -> list[str] | None:
        names = self.tree.children(path)
        return None if names is None else [name for name in names if f"{path}/{name}" not in self.unheard]

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        return [None if path in self.unheard else self.tree.read(path) for path in paths]

    def sync(self) -> None:
        self.unheard.clear()

    def commit(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        return self.tree.multi(self._session, ops)

    def make(self, path: str, content: Any = b"", *, ephemeral: bool = False) -> None:
        """Create a znode with all above it; what is no bytes is written as JSON."""
        for above in ancestors(path):
            if self.tree.read(above) is None:
                self.commit([Create(above)])
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        assert all(result.ok for result in self.commit([Create(path, data, ephemeral=ephemeral)])), path

    def content(self, path: str) -> Any:
        znode = self.tree.read(path)
        assert znode is not None, path
        return json.loads(znode.data)

    def broker(self, broker: int, rack: str | None = None) -> None:
        registration = {
            "version": 5,
            "host": "h",
            "port": 9092 + broker,
            "endpoints": [f"PLAINTEXT://h:{9092 + broker}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "jmx_port": -1,
            "timestamp": "1",
            **({"rack": rack} if rack else {}),
        }
        self.make(f"/brokers/ids/{broker}", registration, ephemeral=True)

    def topic(self, name: str, partitions: dict[int, list[int]], **more: Any) -> None:
        """A topic with a state for each partition, led by its first replica, all in sync."""
        placed = {str(p): replicas for p, replicas in partitions.items()}
        self.make(f"/config/topics/{name}", {"version": 1, "config": {}})
        content = {"version": 3, "partitions": placed, "adding_replicas": {}, "removing_replicas": {}, **more}
        self.make(f"/brokers/topics/{name}", {"topic_id": "A" * 22, **content})
        for p, replicas in partitions.items():
            self.state(name, p, leader=replicas[0], isr=replicas)

    def state(self, topic: str, partition: int, *, leader: int, isr: list[int], **more: int) -> None:
        content = {"version": 1, "leader": leader, "leader_epoch": 0, "controller_epoch": 1, "isr": isr, **more}
        self.make(f"/brokers/topics/{topic}/partitions/{partition}/state", content)
