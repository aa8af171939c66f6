"""Znodes, read and written synchronously: the port of the commands that work on ZooKeeper itself, and kazoo behind it.

Values are those of `broker/znodes/ops`; every write is one multi, so that it can check versions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.settings import BadSettings
from logyard.admin.zookeeper.batch import read_znodes
from logyard.broker.zk.access import ANYBODY, Access
from logyard.broker.znodes.ops import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    OpResult,
    SetData,
    ZkCode,
    ZkOp,
    Znode,
    refused,
)
from logyard.broker.znodes.paths import TOPICS, ancestors
from logyard.broker.znodes.permissions import Acl, Acls, open_acls, secure_acls

IN_FLIGHT = 100

T = TypeVar("T")


class NotAllowed(EnsembleUnreachable):
    """ZooKeeper does not allow it to this identity."""

    def __init__(self, path: str = "this znode") -> None:
        super().__init__(
            f"ZooKeeper does not allow it to this user ({path}): give the identity that owns the znodes, the brokers', "
            "with --zk-tls-config-file"
        )


class ZnodeClient(Protocol):
    """The part of a ZooKeeper session that is used. Methods raise EnsembleUnreachable if it does not answer."""

    def children(self, path: str) -> list[str] | None:
        """The children's names, sorted; None if there is no such znode."""
        ...

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """Data and versions, None for each that does not exist."""
        ...

    def sync(self) -> None:
        """Let reads from now on show what ZooKeeper's leader knows now; the session's server may be behind it."""
        ...

    def commit(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        """Carry out all ops in one transaction, or none."""
        ...

    def close(self) -> None: ...


class KazooZnodes:
    """`ZnodeClient` over a real ZooKeeper. `connect` is host:port[,host:port…][/chroot].

    What it creates belongs to the identity of `access`, if that has one, as with Kafka's tools.
    """

    def __init__(self, connect: str, timeout_s: float = 15.0, access: Access = ANYBODY) -> None:
        from logyard.broker.zk.kazoo_access import NoConnection, started_client

        refuse_address(connect)

        self._connect = connect
        self._acls_of = secure_acls if access.has_identity else open_acls
        try:
            self._client: Any = started_client(connect, access, timeout_s)
        except NoConnection as problem:
            raise EnsembleUnreachable(str(problem)) from None

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def children(self, path: str) -> list[str] | None:
        from kazoo.exceptions import NoNodeError

        try:
            with _possible_paths():
                return sorted(self._asked(lambda: self._client.get_children(path)))
        except NoNodeError:
            return None

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        with _possible_paths():
            return read_znodes(self._client, paths, lambda answer: self._asked(answer.get))

    def sync(self) -> None:
        self._asked(lambda: self._client.sync("/"))

    def commit(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        with _possible_paths():
            return self._commit(ops)

    def _commit(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        transaction = self._client.transaction()
        for op in ops:
            match op:
                case Create(path, data, ephemeral, sequential):
                    acl = kazoo_acls(self._acls_of(path))
                    transaction.create(path, data, acl, ephemeral=ephemeral, sequence=sequential)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return [_result(answer) for answer in self._asked(transaction.commit)]

    # --- what `migration.AclClient` needs

    def acls(self, paths: Sequence[str]) -> list[Acls | None]:
        def read(answer: Any) -> Acls:
            return tuple(Acl(acl.perms, acl.id.scheme, acl.id.id) for acl in answer[0])

        return self._each(self._client.get_acls_async, paths, read)

    def set_acls(self, paths: Sequence[str], acls_of: Callable[[str], Acls]) -> list[bool | None]:
        return self._each(
            lambda path: self._client.set_acls_async(path, kazoo_acls(acls_of(path))), paths, lambda answer: True
        )

    def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._each(self._client.get_children_async, paths, lambda answer: sorted(answer))

    def _each(self, ask: Callable[[str], Any], paths: Sequence[str], read: Callable[[Any], T]) -> list[T | None]:
        """Ask for each path, many before the first answer; None for those that do not exist."""
        from kazoo.exceptions import InvalidACLError, NoAuthError, NoNodeError

        found: list[T | None] = []
        for first in range(0, len(paths), IN_FLIGHT):
            pending = [(path, ask(path)) for path in paths[first : first + IN_FLIGHT]]
            for path, answer in pending:
                try:
                    found.append(read(self._asked(answer.get)))
                except NoNodeError:
                    found.append(None)
                except (NoAuthError, InvalidACLError):
                    raise NotAllowed(path) from None
        return found

    def _asked(self, ask: Any) -> Any:
        from kazoo.exceptions import (
            AuthFailedError,
            ConnectionClosedError,
            ConnectionLoss,
            NoAuthError,
            OperationTimeoutError,
            SessionExpiredError,
        )

        try:
            return ask()
        except NoAuthError:
            raise NotAllowed from None
        except (
            AuthFailedError,
            ConnectionClosedError,
            ConnectionLoss,
            OperationTimeoutError,
            SessionExpiredError,
        ) as problem:
            raise EnsembleUnreachable(
                f"ZooKeeper {self._connect} was lost ({type(problem).__name__}): check the result and try again"
            ) from None


def refuse_address(connect: str) -> None:
    """Raise BadSettings unless this is host:port[,host:port…][/chroot]."""
    from kazoo.hosts import collect_hosts
    from kazoo.protocol.paths import normpath

    try:
        _, chroot = collect_hosts(connect)
        normpath(chroot or "/")
    except ValueError as problem:
        raise BadSettings(f"ZooKeeper {connect!r}: host:port[,host:port…][/chroot] is expected ({problem})") from None


@contextmanager
def _possible_paths() -> Iterator[None]:
    """Names become parts of paths, and some cannot: `..`, or one with a character that is none. Raises BadSettings."""
    from kazoo.exceptions import BadArgumentsError

    try:
        yield
    except (ValueError, BadArgumentsError) as problem:
        raise BadSettings(f"no znode can have such a name: {str(problem) or 'ZooKeeper refuses it'}") from None


def kazoo_acls(acls: Acls) -> list[Any]:
    """Return an ACL in kazoo's types."""
    from kazoo.security import ACL, Id

    return [ACL(acl.permissions, Id(acl.scheme, acl.id)) for acl in acls]


def require_cluster(znodes: ZnodeClient, connect: str) -> None:
    """Raise EnsembleUnreachable if there is no cluster below this chroot."""
    if znodes.children(TOPICS) is None:
        raise EnsembleUnreachable(f"there is no cluster at {connect}: check the chroot of --zookeeper")


def make_chroot(connect: str, access: Access = ANYBODY) -> None:
    """Create the chroot of `connect` if it has one that is missing, as the first broker does.

    Raises EnsembleUnreachable.
    """
    hosts, _, chroot = connect.partition("/")
    if not chroot.strip("/"):
        return
    znodes = KazooZnodes(hosts, access=access)
    try:
        make(znodes, f"/{chroot.strip('/')}")
    finally:
        znodes.close()


def make(znodes: ZnodeClient, path: str) -> None:
    """Create a znode and its parents, as far as they are missing."""
    wanted = [*ancestors(path), path]
    missing = [one for one, found in zip(wanted, znodes.read(wanted), strict=True) if found is None]
    for one in missing:
        znodes.commit([Create(one)])


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
        theirs.NoAuthError: ZkCode.NO_AUTH,
        theirs.InvalidACLError: ZkCode.INVALID_ACL,
        theirs.RolledBackError: ZkCode.ROLLED_BACK,
        theirs.RuntimeInconsistency: ZkCode.ROLLED_BACK,
    }
    if isinstance(answer, Exception):
        return OpResult(codes.get(type(answer), ZkCode.FAILED))
    return OpResult(ZkCode.OK, answer if isinstance(answer, str) else "", getattr(answer, "version", -1))
