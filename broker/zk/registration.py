"""What a broker writes to ZooKeeper at start: the persistent paths, the cluster id, its id, its registration
(facts §1, §2)."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.model import BrokerInfo
from logyard.broker.znodes import brokers, cluster_id, paths
from logyard.broker.znodes.ops import Create, Delete, OpResult, SetData, WatchEvent, ZkCode, ZkOp, Znode, ZooKeeper


class BrokerIdTaken(LogyardError):
    """Another broker is registered with this broker id; its registration was not changed."""


async def create_persistent_paths(zk: ZooKeeper) -> None:
    """Create the znodes of `paths.PERSISTENT`, and those above them, that are missing."""
    wanted: dict[str, None] = {}
    for path in paths.PERSISTENT:
        wanted.update(dict.fromkeys([*paths.ancestors(path), path]))
    # ZooKeeper carries out a session's requests in order, so a parent is created before its child.
    answers = await zk.pipeline([[Create(path)] for path in wanted])
    for path, (result,) in zip(wanted, answers, strict=True):
        _expect(result, path, ZkCode.OK, ZkCode.NODE_EXISTS)


async def get_or_create_cluster_id(zk: ZooKeeper, new_uuid: Callable[[], uuid.UUID]) -> str:
    """Return the id in /cluster/id, created if it is missing (by one of the brokers that start). Raises CorruptData."""
    (znode,) = await zk.read([cluster_id.PATH])
    if znode is None:
        content = cluster_id.encode(cluster_id.from_uuid(new_uuid()))
        await zk.multi([Create(paths.ancestors(cluster_id.PATH)[-1])])
        (result,) = await zk.multi([Create(cluster_id.PATH, content)])
        _expect(result, cluster_id.PATH, ZkCode.OK, ZkCode.NODE_EXISTS)
        (znode,) = await zk.read([cluster_id.PATH])
    if znode is None:
        raise LogyardError(f"znode {cluster_id.PATH} vanished while it was read: start the broker again")
    return cluster_id.decode(znode.data)


async def generate_broker_id(zk: ZooKeeper, reserved_broker_max_id: int) -> int:
    """Return a new broker id, above `reserved.broker.max.id`. The persistent paths must exist."""
    (result,) = await zk.multi([SetData(brokers.SEQUENCE_PATH, b"")])
    _expect(result, brokers.SEQUENCE_PATH, ZkCode.OK)
    return brokers.generated_id(result.version, reserved_broker_max_id)


class BrokerRegistration:
    """Registers this broker as /brokers/ids/N; call `register` in each new session."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._last_session: int | None = None

    async def register(
        self,
        info: BrokerInfo,
        timestamp_ms: int,
        *,
        version: int = brokers.VERSION_WITH_FEATURES,
        patience_s: float = 0.0,
    ) -> int:
        """Register, and return the broker epoch (the znode's czxid).

        The registration of our previous session is replaced, if the server has not removed it yet (KAFKA-7165). One
        with the endpoints that we have bound is that of a killed process: we wait up to `patience_s` seconds (its
        session timeout) for its session to end. Any other one stays, and BrokerIdTaken is raised.

        Raises SessionExpired, BrokerIdTaken.
        """
        session = self._zk.session_id
        path = brokers.path(info.id)
        content = brokers.encode(info, timestamp_ms, version=version)
        # Created and set in one transaction, so that its version is 1, as Kafka's, and watchers see it with its data.
        ops: list[ZkOp] = [Create(path, ephemeral=True), SetData(path, content, 0)]
        while True:
            created, written = await self._zk.multi(ops)
            if written.ok:
                self._last_session = session
                return written.czxid
            _expect(created, path, ZkCode.NODE_EXISTS)
            (found,) = await self._zk.read([path])
            if found is None:
                continue  # it has just been deleted
            if found.ephemeral_owner == session:
                await self._zk.multi([SetData(path, content)])
                self._last_session = session
                return found.czxid
            if found.ephemeral_owner == self._last_session:
                await self._zk.multi([Delete(path, found.version)])
            elif not (_same_endpoints(info, found) and await self._gone(path, patience_s)):
                raise BrokerIdTaken(
                    f"broker id {info.id} is registered already (session 0x{found.ephemeral_owner & (2**64 - 1):x}): "
                    "stop the other broker, wait for its session to time out, or choose another broker.id"
                )

    async def _gone(self, path: str, patience_s: float) -> bool:
        """Wait until a znode is deleted; False if it still exists after `patience_s` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while (left := deadline - loop.time()) > 0:
            changed = asyncio.Event()

            def wake(event: WatchEvent, path: str, changed: asyncio.Event = changed) -> None:
                changed.set()

            if await self._zk.read_and_watch(path, wake) is None:
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()
        return False


def _same_endpoints(info: BrokerInfo, found: Znode) -> bool:
    try:
        return brokers.decode(info.id, found).endpoints == info.endpoints
    except CorruptData:
        return False


def _expect(result: OpResult, path: str, *codes: ZkCode) -> None:
    if result.code not in codes:
        raise LogyardError(f"ZooKeeper does not let this broker write {path}: {result.code.value}")
