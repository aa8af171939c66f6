"""Opening kafka-python's admin client (pinned): the only module that imports it.

What is guarded against, seen in kafka-python 3.0.12:
- its bootstrap picks one server at random and may wait for a hung one until the end; here servers are tried in turn;
- its constructor leaves a thread behind when it fails; here that is stopped;
- its back-off for a broker that was away grows to 30 s; here to 1 s;
- it logs in again and again with a password that is refused, and then speaks of a time-out; here the refusal ends it,
  and is told apart (`_net_client`).
"""

import logging
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from logyard.admin.cluster import translation
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.admin.recovery.witnesses import Probe, Queue, Wire
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ErrorCode

_RETRY_PAUSE_S = 0.25
_PROBES = 3


def connect(settings: ClusterSettings, servers: Sequence[str], timeout_s: float) -> Any:
    """Open kafka-python's admin client by the first server that answers. Raises ClusterUnreachable; AccessRefused
    as soon as a login was refused and no server took it."""
    deadline = time.monotonic() + timeout_s
    said: dict[str, str] = {}
    while True:
        refused = False
        for server in servers:
            left = max(deadline - time.monotonic(), 0.5)
            share = left if len(servers) == 1 else min(left, settings.request_timeout_s / 2)
            try:
                # kafka-python would use its whole share of the time on a server that refuses connections.
                host, _, port = server.rpartition(":")
                refusal = knock(host.strip("[]"), int(port), share) if host and port.isdecimal() else None
                if refusal is not None:
                    raise refusal
                return open_by(settings, server, share)
            except Exception as problem:  # whatever it raises: the next server may do better
                said[server] = str(problem) or type(problem).__name__
                refused = refused or is_refused_login(problem)
        if refused:
            # Another try would fail the same way, and may lock the user out.
            reasons = "; ".join(f"{server}: {text}" for server, text in said.items())
            raise AccessRefused(f"the login of {settings.username!r} is refused ({reasons})")
        if time.monotonic() >= deadline:
            reasons = "; ".join(f"{server}: {text}" for server, text in said.items())
            raise ClusterUnreachable(f"no broker answered ({reasons}): check address, protocol and credentials")
        time.sleep(_RETRY_PAUSE_S)


def knock(host: str, port: int, timeout_s: float) -> OSError | None:
    """Try a TCP connection; None where it comes about."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError as problem:
        return problem
    return None


def is_refused_login(problem: BaseException) -> bool:
    from kafka import errors as theirs

    return isinstance(problem, theirs.SaslAuthenticationFailedError)


def open_by(settings: ClusterSettings, server: str, timeout_s: float) -> Any:
    """Open the admin client by that server alone. Raises what kafka-python raises, with its cause."""
    from kafka import KafkaAdminClient

    quiet = logging.getLogger("kafka")
    if quiet.level == logging.NOTSET:
        quiet.setLevel(logging.WARNING)  # it tells of every connection, in every task's log
    security = {
        "sasl_mechanism": settings.sasl_mechanism,
        "sasl_plain_username": settings.username if settings.sasl_mechanism else None,
        "sasl_plain_password": settings.password if settings.sasl_mechanism else None,
        "ssl_cafile": settings.ssl_cafile,
        "ssl_certfile": settings.ssl_certfile,
        "ssl_keyfile": settings.ssl_keyfile,
        "ssl_password": settings.ssl_password,
        "ssl_check_hostname": settings.ssl_check_hostname,
    }
    admin = KafkaAdminClient.__new__(KafkaAdminClient)
    try:
        admin.__init__(
            bootstrap_servers=[server],
            client_id="logyard-admin",
            security_protocol=settings.security_protocol,
            request_timeout_ms=round(settings.request_timeout_s * 1000),
            bootstrap_timeout_ms=round(timeout_s * 1000),
            reconnect_backoff_max_ms=1000,
            kafka_client=_net_client,
            **security,
        )
    except BaseException as problem:
        # Its constructor has started a thread by now and would leave it running.
        if hasattr(admin, "_net"):
            admin._client.close()
            admin._net.stop()
            # "Unable to bootstrap" says nothing: why the last connection failed does.
            reason = admin._client._manager.last_failure
            if reason is not problem:
                raise problem from reason
        raise
    return admin


def _net_client(**configs: Any) -> Any:
    """kafka-python's client over a manager that keeps what it otherwise only logs: why a connection failed."""
    from kafka.net.compat import KafkaNetClient
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.selector import NetworkSelector

    class Manager(KafkaConnectionManager):  # type: ignore[misc]
        last_failure: Exception | None = None

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.refused_logins: dict[Any, Exception] = {}

        def maybe_raise_auth_failure(self, node_id: Any) -> None:
            if node_id in self.refused_logins:
                raise self.refused_logins[node_id]

        def get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
            known = self._conns.get(node_id)
            connection = super().get_connection(node_id, *arguments, **options)
            if connection is not known:

                def keep(problem: Exception) -> None:
                    self.last_failure = problem
                    if is_refused_login(problem):
                        self.refused_logins[node_id] = problem

                connection.init_future.add_errback(keep)
                connection.close_future.add_errback(keep)
            return connection

    net = NetworkSelector(**configs)
    return KafkaNetClient(net=net, manager=Manager(net, **configs), **configs)


def ask_controller(admin: Any, broker: int, timeout_s: float) -> Probe:
    """Ask one broker Metadata and, three times over, ListPartitionReassignments, on one connection."""
    from kafka import errors as theirs
    from kafka.protocol.admin import ListPartitionReassignmentsRequest
    from kafka.protocol.metadata import MetadataRequest

    timeout_ms = round(timeout_s * 1000)

    def send(request: Any) -> Any:
        # On the broker's own connection, so that Metadata is a fair control for the other request.
        return admin._manager.run(lambda: admin._manager.send(request, node_id=broker, request_timeout_ms=timeout_ms))

    try:
        answer = send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    except theirs.UnknownBrokerIdError:
        # It answered Metadata when it was opened, and does not know itself: it is not registered, or only just.
        return Probe(broker, Wire.ANSWERS, cluster_id=admin._manager.cluster.cluster_id)
    except Exception as problem:
        return Probe(broker, wire_of(problem), detail=f"Metadata: {problem}")
    heard = Probe(broker, Wire.ANSWERS, Queue.SILENT, int(answer.controller_id), answer.cluster_id)
    for _ in range(_PROBES):
        try:
            listed = send(ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None))
        except Exception as problem:
            heard = replace(heard, queue=Queue.SILENT, detail=f"ListPartitionReassignments: {problem}")
            continue
        code = translation.code(listed.error_code)
        if code is ErrorCode.NONE:
            return replace(heard, queue=Queue.ANSWERS, detail="")
        forbidden = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        queue = Queue.FORBIDDEN if forbidden else Queue.REFUSES
        heard = replace(heard, queue=queue, detail=f"ListPartitionReassignments: {code.name}")
        if forbidden:
            break
    return heard


def wire_of(problem: BaseException) -> Wire:
    """What a failure of kafka-python's says of a broker that gave a sign of life just before."""
    from kafka import errors as theirs

    silent = (theirs.RequestTimedOutError, theirs.KafkaTimeoutError, TimeoutError)
    return Wire.SILENT if isinstance(problem.__cause__ or problem, silent) else Wire.REFUSES
