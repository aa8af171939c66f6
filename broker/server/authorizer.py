"""Decides by ACLs what a connection's principal may do, and writes the audit log (facts §18.4).

Rule 1: decisions are kept for each connection, until an ACL or the principal changes: a request costs a look-up.
Rule 2: the audit log has a line for each decision that denies, and with `logyard.audit.allowed`, or where its level is
        DEBUG, for those that allow. Text from peers is quoted where it could be mistaken for another field.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.relations import super_users
from logyard.broker.log_format import shown
from logyard.broker.log_levels import AUDIT, LogLevels
from logyard.broker.protocol.schema import API_NAMES
from logyard.broker.security.acls.rules import Acls, Subject
from logyard.broker.security.acls.store import AclStore
from logyard.broker.security.acls.watcher import AclWatcher
from logyard.broker.server.request import Session
from logyard.broker.server.rights import EverythingAllowed, Operation, Resource, Rights
from logyard.broker.zk.own_session import OwnSession
from logyard.broker.zk.session_watches import Followed
from logyard.broker.znodes.ops import ZooKeeper

# The bounds of what is kept for a connection: clients choose the names.
DECISIONS_MAX = 256
NAME_LENGTH_MAX = 255
# The principals that one line tells of each, that they are not allowed to act as brokers.
BROKERS_TOLD_MAX = 100

ANY_NAME = "NONE"

log = structlog.get_logger(AUDIT)


class AclAuthorizer:
    """Rights by ACLs. `super_users` are principals that may do everything."""

    is_open = False

    def __init__(self, acls: Acls, super_users: Iterable[str] = (), *, logs_allowed: bool = False) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._allowed_at_info = logs_allowed
        self.logs_allowed = logs_allowed
        self._told: dict[str, None] = {}

    @property
    def version(self) -> int:
        return self._acls.version

    def allow(
        self,
        session: Session,
        operation: Operation,
        resource: Resource,
        name: str,
        api_key: int | str = -1,
        count: int = 1,
    ) -> bool:
        acls = self._acls
        if session.decided_version != acls.version or session.decided_principal != session.principal:
            self._begin(session)
        allowed = session.decisions.get((operation, resource, name))
        if allowed is None:
            allowed = self._decide(session, operation, resource, name)
        if count and (not allowed or self.logs_allowed):
            self._audit(session, operation, f"{resource}:LITERAL:{shown(name)}", api_key, count, allowed=allowed)
            if operation is Operation.CLUSTER_ACTION and not allowed:
                self._tell_of_broker(session, api_key)
        return allowed

    def allow_any(self, session: Session, operation: Operation, resource: Resource, api_key: int = -1) -> bool:
        if session.decided_version != self._acls.version or session.decided_principal != session.principal:
            self._begin(session)
        key = (operation, resource, None)
        allowed = session.decisions.get(key)
        if allowed is None:
            allowed = session.principal in self._super_users or self._acls.decide_by_type(
                Subject(session.principal, session.client_host), operation, resource
            )
            session.decisions[key] = allowed
        if not allowed or self.logs_allowed:
            self._audit(session, operation, f"{resource}:UNKNOWN:{ANY_NAME}", api_key, 0, allowed=allowed)
        return allowed

    def tell_allowed(self, *, at_debug: bool) -> None:
        """Whether what is allowed is written at DEBUG, where the settings do not want it at INFO anyway."""
        self.logs_allowed = self._allowed_at_info or at_debug

    def _begin(self, session: Session) -> None:
        session.decisions = {}
        session.decided_version = self._acls.version
        session.decided_principal = session.principal

    def _decide(self, session: Session, operation: Operation, resource: Resource, name: str) -> bool:
        allowed = session.principal in self._super_users or self._acls.decide(
            Subject(session.principal, session.client_host), operation, resource, name
        )
        if len(name) <= NAME_LENGTH_MAX:
            if len(session.decisions) >= DECISIONS_MAX:
                session.decisions.clear()
            session.decisions[operation, resource, name] = allowed
        return allowed

    def _audit(
        self, session: Session, operation: Operation, resource: str, api_key: int | str, count: int, *, allowed: bool
    ) -> None:
        """Log a line with the words of Kafka's."""
        say = log.debug if allowed and not self._allowed_at_info else log.info
        say(
            f"Principal = {shown(session.principal)} is {'Allowed' if allowed else 'Denied'} Operation = {operation} "
            f"from host = {session.client_host} on resource = {resource} "
            f"for request = {_request_name(api_key)} with resourceRefCount = {count}",
            logger=AUDIT,
        )

    def _tell_of_broker(self, session: Session, api_key: int | str) -> None:
        if session.principal in self._told or len(self._told) >= BROKERS_TOLD_MAX:
            return
        self._told[session.principal] = None
        log.warning(
            "a request that only brokers send is refused: if it comes from a broker of this cluster, put its principal "
            "into super.users of all brokers, or allow it ClusterAction on the cluster",
            principal=session.principal,
            host=session.client_host,
            request=_request_name(api_key),
        )


@dataclass(frozen=True, slots=True)
class Authorization:
    """An authorizer, the ACLs that it goes by, and the watches that keep these as they are in ZooKeeper."""

    rights: Rights
    acls: AclStore | None = None
    watches: Sequence[Followed] = ()


def authorization_from(
    config: BrokerConfig,
    zk: ZooKeeper,
    below: Callable[[int], int],
    open_own: Callable[[], Any] | None = None,
    levels: LogLevels | None = None,
) -> Authorization:
    """Return what the settings ask for; `below` gives a random number below a bound.

    `zk` is the broker's session; `open_own` opens that of the ACLs where it is another one; `levels` are followed.
    """
    if not config.str("authorizer.class.name"):
        return Authorization(EverythingAllowed())
    known = Acls(everyone_if_none=config.bool("allow.everyone.if.no.acl.found"))
    own = None if open_own is None else open_own()
    store = AclStore(own or zk, known, _note, below)
    users = super_users(config.str("super.users"))
    rights = AclAuthorizer(known, users, logs_allowed=config.bool("logyard.audit.allowed"))
    if levels is not None:
        levels.follow(lambda: rights.tell_allowed(at_debug=levels.is_written(AUDIT, "DEBUG")))
    watcher = AclWatcher(own or zk, store, _note)
    if own is None:
        return Authorization(rights, store, [watcher])
    timeout_ms = config.value("authorizer.zookeeper.connection.timeout.ms")
    timeout_ms = config.int("zookeeper.connection.timeout.ms") if timeout_ms is None else timeout_ms
    assert isinstance(timeout_ms, int)
    return Authorization(rights, store, [OwnSession("ACLs", own, watcher, timeout_ms / 1000)])


def _request_name(request: int | str) -> str:
    """Return the name of an API by its key; a route of HTTP is its own name."""
    return request if isinstance(request, str) else API_NAMES.get(request, str(request))


def _note(note: str) -> None:
    log.error("acls", note=note)
