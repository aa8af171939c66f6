"""The cluster's ZooKeeper by kazoo: read by the schemas of broker/znodes, written only under a fence.

Kazoo's import and connection happen when an `Ensemble` is opened. Sessions here are short: nothing but the nudge
creates anything ephemeral.
"""

from collections.abc import Sequence
from typing import Any

from logyard.admin.ports import ControllerView, EnsembleUnreachable, PartitionsView
from logyard.broker.errors import CorruptData
from logyard.broker.model import Assignment, BrokerInfo, PartitionState, TopicPartition
from logyard.broker.znodes import brokers, controller, delete_topics, partition_state, topics
from logyard.broker.znodes.ops import Znode
from logyard.broker.znodes.paths import BROKER_IDS

_IN_FLIGHT = 100
# What a nudge writes into /controller for a moment: no broker has this id, so nobody takes itself for elected.
_NOBODY = -1


class KazooEnsemble:
    """`ports.Ensemble` over a real ZooKeeper. `connect` is host:port[,host:port…][/chroot]."""

    def __init__(self, connect: str, timeout_s: float = 10.0) -> None:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        self._client: Any = KazooClient(hosts=connect, timeout=timeout_s)
        try:
            self._client.start(timeout=timeout_s)
        except (KazooException, KazooTimeoutError, OSError) as problem:
            self._client.stop()
            self._client.close()
            raise EnsembleUnreachable(
                f"ZooKeeper {connect} does not answer within {timeout_s:g} s: {problem}"
            ) from None

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def controller(self) -> ControllerView:
        held, epoch = self._read([controller.PATH, controller.EPOCH_PATH])
        return ControllerView(
            holder=_holder(held),
            czxid=held.czxid if held else -1,
            epoch=_epoch(epoch),
            epoch_version=epoch.version if epoch else -1,
            brokers=self._brokers(),
        )

    def partitions(self) -> PartitionsView:
        names = self._children(topics.PATH)
        assignments: dict[TopicPartition, Assignment] = {}
        for name, znode in zip(names, self._read([topics.topic_path(name) for name in names]), strict=True):
            assignments.update(_assignments(name, znode))
        order = sorted(assignments)
        states: dict[TopicPartition, PartitionState] = {}
        for tp, znode in zip(order, self._read([partition_state.path(tp) for tp in order]), strict=True):
            state = _state(tp, znode)
            if state is not None:
                states[tp] = state
        return PartitionsView(
            states=states,
            assignments=assignments,
            stateless=tuple(tp for tp in order if tp not in states),
            deleting=tuple(self._children(delete_topics.PATH)),
        )

    def fence(self, seen: ControllerView) -> bool:
        from kazoo.exceptions import NoNodeError

        try:
            _, stat = self._client.get(controller.PATH)
        except NoNodeError:
            return False
        # An election raises /controller_epoch in the same multi that creates /controller: the check of the epoch's
        # version is what holds; the czxid only saves a try that is known to fail.
        if stat.czxid != seen.czxid:
            return False
        return self._commit([("check", controller.EPOCH_PATH, seen.epoch_version), ("delete", controller.PATH)])

    def nudge_election(self) -> bool:
        from kazoo.exceptions import NodeExistsError

        try:
            self._client.create(controller.PATH, controller.encode(_NOBODY, 0), ephemeral=True)
        except NodeExistsError:
            return False
        return self._commit([("delete", controller.PATH)])

    def repair_epoch(self, seen: ControllerView, epoch: int) -> bool:
        from kazoo.exceptions import BadVersionError, NoNodeError

        try:
            self._client.set(controller.EPOCH_PATH, controller.encode_epoch(epoch), version=seen.epoch_version)
        except (BadVersionError, NoNodeError):
            return False
        return True

    def _commit(self, operations: Sequence[tuple[Any, ...]]) -> bool:
        transaction = self._client.transaction()
        for name, *arguments in operations:
            getattr(transaction, name)(*arguments)
        return not any(isinstance(result, Exception) for result in transaction.commit())

    def _brokers(self) -> dict[int, BrokerInfo]:
        ids = sorted(int(name) for name in self._children(BROKER_IDS) if name.isdecimal())
        found: dict[int, BrokerInfo] = {}
        for broker, znode in zip(ids, self._read([brokers.path(broker) for broker in ids]), strict=True):
            if znode is not None:
                try:
                    found[broker] = brokers.decode(broker, znode)
                except CorruptData:
                    # Alive all the same: its ephemeral znode stands; only its addresses cannot be told.
                    found[broker] = BrokerInfo(broker, (), epoch=znode.czxid)
        return found

    def _children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return []

    def _read(self, paths: Sequence[str]) -> list[Znode | None]:
        """Read znodes with up to 100 requests under way; None where there is none."""
        found: list[Znode | None] = []
        for first in range(0, len(paths), _IN_FLIGHT):
            pending = [self._client.get_async(path) for path in paths[first : first + _IN_FLIGHT]]
            found.extend(_znode(answer) for answer in pending)
        return found


def _znode(answer: Any) -> Znode | None:
    from kazoo.exceptions import NoNodeError

    try:
        data, stat = answer.get()
    except NoNodeError:
        return None
    return Znode(data, stat.version, stat.czxid, stat.mtime, stat.ephemeralOwner)


def _holder(znode: Znode | None) -> int | None:
    if znode is None:
        return None
    try:
        return controller.decode(znode.data)
    except CorruptData:
        return _NOBODY  # somebody holds it, nobody knows who: fencing it is the treatment


def _epoch(znode: Znode | None) -> int | None:
    if znode is None:
        return None
    try:
        return controller.decode_epoch(znode.data)
    except CorruptData:
        return None


def _assignments(topic: str, znode: Znode | None) -> dict[TopicPartition, Assignment]:
    if znode is None:
        return {}
    try:
        decoded = topics.decode(znode.data, topics.topic_path(topic))
    except CorruptData:
        return {}  # a bad topic hurts only itself
    return {TopicPartition(topic, number): assignment for number, assignment in decoded.partitions.items()}


def _state(tp: TopicPartition, znode: Znode | None) -> PartitionState | None:
    if znode is None:
        return None
    try:
        return partition_state.decode(znode.data, znode.version, partition_state.path(tp))
    except CorruptData:
        return None
