"""Znodes, read and written synchronously: the port of the commands that work on ZooKeeper itself, and kazoo behind it.

Values are those of `broker/znodes/ops`; every write is one multi, so that it can check versions.
"""

import warnings
from collections.abc import Sequence
from typing import Any, Protocol

from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.zookeeper.batch import read_znodes
from logyard.broker.znodes.ops import ANY_VERSION, Check, Create, Delete, OpResult, SetData, ZkCode, ZkOp, Znode
from logyard.broker.znodes.paths import TOPICS, ancestors


class ZnodeClient(Protocol):
    """The part of a ZooKeeper session that is used. Methods raise EnsembleUnreachable if it does not answer."""

    def children(self, path: str) -> list[str] | None:
        """The children's names, sorted; None if there is no such znode."""
        ...

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """Data and versions, None for each that does not exist."""
        ...

    def commit(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        """Carry out all ops in one transaction, or none."""
        ...

    def close(self) -> None: ...


class KazooZnodes:
    """`ZnodeClient` over a real ZooKeeper. `connect` is host:port[,host:port…][/chroot]."""

    def __init__(self, connect: str, timeout_s: float = 15.0) -> None:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        self._connect = connect
        self._client: Any = KazooClient(hosts=connect, timeout=timeout_s)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a missing chroot, which gets an error of our own
                self._client.start(timeout=timeout_s)
        except (KazooException, KazooTimeoutError, OSError) as problem:
            self.close()
            raise EnsembleUnreachable(f"no ZooKeeper answers at {connect}: check --zookeeper ({problem})") from None

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def children(self, path: str) -> list[str] | None:
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(self._asked(lambda: self._client.get_children(path)))
        except NoNodeError:
            return None

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        return read_znodes(self._client, paths, lambda answer: self._asked(answer.get))

    def commit(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        transaction = self._client.transaction()
        for op in ops:
            match op:
                case Create(path, data, ephemeral, sequential):
                    transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return [_result(answer) for answer in self._asked(transaction.commit)]

    def _asked(self, ask: Any) -> Any:
        from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, OperationTimeoutError, SessionExpiredError

        try:
            return ask()
        except (ConnectionClosedError, ConnectionLoss, OperationTimeoutError, SessionExpiredError) as problem:
            raise EnsembleUnreachable(
                f"ZooKeeper {self._connect} was lost ({type(problem).__name__}): check the result and try again"
            ) from None


def require_cluster(znodes: ZnodeClient, connect: str) -> None:
    """Raise EnsembleUnreachable if there is no cluster below this chroot."""
    if znodes.children(TOPICS) is None:
        raise EnsembleUnreachable(f"there is no cluster at {connect}: check the chroot of --zookeeper")


def refused(results: Sequence[OpResult]) -> ZkCode | None:
    """Why a multi was refused; None if it succeeded."""
    codes = [result.code for result in results if not result.ok]
    return next((code for code in codes if code is not ZkCode.ROLLED_BACK), codes[0] if codes else None)


def put(znodes: ZnodeClient, path: str, data: bytes) -> ZkCode | None:
    """Write a znode unconditionally; it and its parents are created if missing."""
    problem = refused(znodes.commit([SetData(path, data, ANY_VERSION)]))
    if problem is not ZkCode.NO_NODE:
        return problem
    above = ancestors(path)
    missing = [one for one, found in zip(above, znodes.read(above), strict=True) if found is None]
    return refused(znodes.commit([*map(Create, missing), Create(path, data)]))


def _result(answer: Any) -> OpResult:
    from kazoo import exceptions as theirs

    codes = {
        theirs.NoNodeError: ZkCode.NO_NODE,
        theirs.NodeExistsError: ZkCode.NODE_EXISTS,
        theirs.BadVersionError: ZkCode.BAD_VERSION,
        theirs.NotEmptyError: ZkCode.NOT_EMPTY,
        theirs.RolledBackError: ZkCode.ROLLED_BACK,
        theirs.RuntimeInconsistency: ZkCode.ROLLED_BACK,
    }
    if isinstance(answer, Exception):
        return OpResult(codes.get(type(answer), ZkCode.FAILED))
    return OpResult(ZkCode.OK, answer if isinstance(answer, str) else "", getattr(answer, "version", -1))
