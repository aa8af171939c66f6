"""The cluster's ZooKeeper by kazoo: read by the schemas of broker/znodes, written only conditionally.

Kazoo is imported and connects at the first call. Sessions are short: only `nudge_election` and `exercise` create
ephemeral znodes.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from logyard.admin.ports import EnsembleUnreachable, PartitionsView
from logyard.admin.recovery import journal as step_journal
from logyard.admin.recovery.witnesses import FENCE, ControllerView, Journal
from logyard.admin.zookeeper.batch import read_znodes, registrations
from logyard.admin.zookeeper.znodes import kazoo_acls, refuse_address
from logyard.broker.errors import CorruptData
from logyard.broker.model import Assignment, BrokerInfo, PartitionState, TopicPartition
from logyard.broker.zk.access import ANYBODY, Access
from logyard.broker.znodes import (
    cluster_id,
    controller,
    delete_topics,
    partition_state,
    preferred_election,
    topics,
)
from logyard.broker.znodes.ops import Znode
from logyard.broker.znodes.paths import BROKER_IDS
from logyard.broker.znodes.permissions import open_acls, secure_acls

_EXERCISE_POLL_S = 0.05
# The id that a nudge writes into /controller for a moment: no broker has it, so none believes that it is elected.
_NOBODY = -1


class _NotAllowed(EnsembleUnreachable):
    """ZooKeeper answers, and refuses to write."""


class KazooEnsemble:
    """`ports.Ensemble` over a real ZooKeeper. `connect` is host:port[,host:port…][/chroot].

    It connects at the first call. What it creates belongs to the identity of `access`, if that has one.
    """

    def __init__(self, connect: str, timeout_s: float = 10.0, access: Access = ANYBODY) -> None:
        self._connect, self._timeout_s, self._access = connect, timeout_s, access
        self._acls_of = secure_acls if access.has_identity else open_acls
        self._opened: Any = None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.stop()
            self._opened.close()
            self._opened = None

    @property
    def _client(self) -> Any:
        from logyard.broker.zk.kazoo_access import NoConnection, started_client

        if self._opened is None:
            refuse_address(self._connect)
            try:
                self._opened = started_client(self._connect, self._access, self._timeout_s)
            except NoConnection as problem:
                raise EnsembleUnreachable(str(problem)) from None
        return self._opened

    def _acl(self, path: str) -> list[Any]:
        return kazoo_acls(self._acls_of(path))

    def controller(self) -> ControllerView:
        held, epoch, named = self._read([controller.PATH, controller.EPOCH_PATH, cluster_id.PATH])
        return ControllerView(
            holder=_holder(held),
            czxid=held.czxid if held else -1,
            epoch=_epoch(epoch),
            epoch_version=epoch.version if epoch else -1,
            brokers=self._brokers(),
            # /controller is never changed after its creation: its mtime is its ctime.
            elected_ms=held.mtime_ms if held else 0,
            cluster_id=_cluster_id(named),
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

    def exercise(self, timeout_s: float) -> bool | None:
        from kazoo.exceptions import NodeExistsError, NoNodeError

        client, path = self._client, preferred_election.PATH
        deadline, first = time.monotonic() + timeout_s, -1
        while True:
            try:
                # Ephemeral: if no controller removes it, it ends with this session.
                self._done(client.create_async(path, preferred_election.encode([]), self._acl(path), ephemeral=True))
                break
            except (_NotAllowed, NoNodeError):
                return None
            except NodeExistsError:
                # If the request is a tool's or another recovery's, it proves nothing; only the removal of our own shows
                # a controller.
                stat = self._done(client.exists_async(path))
                first = stat.czxid if stat is not None and first < 0 else first
                if time.monotonic() >= deadline:
                    return False if stat is not None and stat.czxid == first else None
                time.sleep(_EXERCISE_POLL_S)
        while self._done(client.exists_async(path)) is not None:
            if time.monotonic() >= deadline:
                self._withdraw(path)
                return False
            time.sleep(_EXERCISE_POLL_S)
        return True

    def _withdraw(self, path: str) -> None:
        """Remove our own request for an election, and no other."""
        from kazoo.exceptions import BadVersionError, NoNodeError

        stat = self._done(self._client.exists_async(path))
        if stat is not None and stat.ephemeralOwner == self._client.client_id[0]:
            with contextlib.suppress(BadVersionError, NoNodeError):
                self._done(self._client.delete_async(path, stat.version))

    def journal(self) -> Journal:
        from kazoo.exceptions import NoNodeError

        client = self._client
        try:
            # This write gives ZooKeeper's time, and a version that changes when any other recovery reads.
            stat = self._done(client.set_async(step_journal.PATH, b""))
        except NoNodeError:
            self._guarded(lambda: client.ensure_path(step_journal.PATH, self._acl(step_journal.PATH)))
            stat = self._done(client.set_async(step_journal.PATH, b""))
        names = self._children(step_journal.PATH)
        paths = [f"{step_journal.PATH}/{name}" for name in names]
        found = [(path, znode) for path, znode in zip(paths, self._read(paths), strict=True) if znode is not None]
        now_ms = int(stat.mtime)
        for path, znode in found:
            if now_ms - znode.mtime_ms > step_journal.KEPT_MS:
                with contextlib.suppress(NoNodeError):
                    self._done(client.delete_async(path))
        steps = [step_journal.decode(znode) for _, znode in found]
        return Journal(now_ms, int(stat.version), tuple(step for step in steps if step is not None))

    def note(self, journal: Journal, kind: str, broker: int) -> bool:
        return self._commit(self._noted(journal, kind, broker))

    def fence(self, seen: ControllerView, journal: Journal) -> bool:
        held = self._read([controller.PATH])[0]
        # An election increments /controller_epoch in the same multi that creates /controller, so the check of the
        # epoch's version is enough; the czxid only saves an attempt that is known to fail.
        if held is None or held.czxid != seen.czxid:
            return False
        epoch = ("check", controller.EPOCH_PATH, seen.epoch_version)
        broker = -1 if seen.holder is None else seen.holder
        return self._commit([epoch, ("delete", controller.PATH), *self._noted(journal, FENCE, broker)])

    def _noted(self, journal: Journal, kind: str, broker: int) -> list[tuple[Any, ...]]:
        data = step_journal.encode(kind, broker)
        return [
            ("set_data", step_journal.PATH, b"", journal.version),
            ("create", step_journal.SEQUENCE_PREFIX, data, self._acl(step_journal.SEQUENCE_PREFIX), False, True),
        ]

    def nudge_election(self) -> bool:
        from kazoo.exceptions import NodeExistsError

        data = controller.encode(_NOBODY, 0)
        try:
            acl = self._acl(controller.PATH)
            self._done(self._client.create_async(controller.PATH, data, acl, ephemeral=True))
        except NodeExistsError:
            return False
        return self._commit([("delete", controller.PATH)])

    def repair_epoch(self, seen: ControllerView, epoch: int) -> bool:
        from kazoo.exceptions import BadVersionError, NoNodeError

        data = controller.encode_epoch(epoch)
        try:
            self._done(self._client.set_async(controller.EPOCH_PATH, data, version=seen.epoch_version))
        except (BadVersionError, NoNodeError):
            return False
        return True

    def _commit(self, operations: Sequence[tuple[Any, ...]]) -> bool:
        from kazoo.exceptions import NoAuthError

        transaction = self._client.transaction()
        for name, *arguments in operations:
            getattr(transaction, name)(*arguments)
        results = self._done(transaction.commit_async())
        refused = next((result for result in results if isinstance(result, NoAuthError)), None)
        if refused is not None:
            raise self._unreachable(refused)
        return not any(isinstance(result, Exception) for result in results)

    def _done(self, answer: Any) -> Any:
        """Wait for an answer within the timeout. Raises kazoo's errors about a znode, else EnsembleUnreachable."""
        return self._guarded(lambda: answer.get(timeout=self._timeout_s))

    def _guarded(self, ask: Callable[[], Any]) -> Any:
        from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return ask()
        except (BadVersionError, NodeExistsError, NoNodeError):
            raise
        except (KazooException, KazooTimeoutError, OSError) as problem:
            raise self._unreachable(problem) from None

    def _unreachable(self, problem: Exception) -> EnsembleUnreachable:
        from kazoo.exceptions import NoAuthError

        if isinstance(problem, NoAuthError):
            return _NotAllowed(f"ZooKeeper {self._connect} does not let this user write what a recovery needs")
        what = str(problem) or type(problem).__name__
        return EnsembleUnreachable(f"ZooKeeper {self._connect} does not answer: {what}")

    def _brokers(self) -> dict[int, BrokerInfo]:
        return registrations(self._children(BROKER_IDS), self._read)

    def _children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(self._done(self._client.get_children_async(path)))
        except NoNodeError:
            return []

    def _read(self, paths: Sequence[str]) -> list[Znode | None]:
        return read_znodes(self._client, paths, self._done)


def _holder(znode: Znode | None) -> int | None:
    if znode is None:
        return None
    try:
        return controller.decode(znode.data)
    except CorruptData:
        return _NOBODY  # held by an unknown broker: to be fenced


def _epoch(znode: Znode | None) -> int | None:
    if znode is None:
        return None
    try:
        return controller.decode_epoch(znode.data)
    except CorruptData:
        return None


def _cluster_id(znode: Znode | None) -> str | None:
    if znode is None:
        return None
    try:
        return cluster_id.decode(znode.data)
    except CorruptData:
        return None


def _assignments(topic: str, znode: Znode | None) -> dict[TopicPartition, Assignment]:
    if znode is None:
        return {}
    try:
        decoded = topics.decode(znode.data, topics.topic_path(topic))
    except CorruptData:
        return {}  # a bad topic affects only itself
    return {TopicPartition(topic, number): assignment for number, assignment in decoded.partitions.items()}


def _state(tp: TopicPartition, znode: Znode | None) -> PartitionState | None:
    if znode is None:
        return None
    try:
        return partition_state.decode(znode.data, znode.version, partition_state.path(tp))
    except CorruptData:
        return None
