"""Opening kafka-python's admin client (pinned): the only module that imports it.

What is guarded against, seen in kafka-python 3.0.12:
- its bootstrap picks one server at random and may wait for a hung one until the end; here servers are tried in turn;
- its constructor leaves a thread behind when it fails; here that is stopped;
- its back-off for a broker that was away grows to 30 s; here to 1 s.
"""

import logging
import socket
import time
from collections.abc import Sequence
from typing import Any

from logyard.admin import translate
from logyard.admin.ports import ClusterUnreachable, Probe
from logyard.admin.settings import ClusterSettings

_RETRY_PAUSE_S = 0.25
_PROBES = 3


def connect(settings: ClusterSettings, servers: Sequence[str], timeout_s: float) -> Any:
    """Open kafka-python's admin client by the first server that answers. Raises ClusterUnreachable."""
    deadline = time.monotonic() + timeout_s
    said: dict[str, str] = {}
    while True:
        for server in servers:
            left = max(deadline - time.monotonic(), 0.5)
            share = left if len(servers) == 1 else min(left, settings.request_timeout_s / 2)
            try:
                # kafka-python would use its whole share of the time on a server that refuses connections.
                host, _, port = server.rpartition(":")
                refusal = knock(host.strip("[]"), int(port), share) if host and port.isdecimal() else None
                if refusal is not None:
                    raise refusal
                return _open(settings, server, share)
            except Exception as problem:  # whatever it raises: the next server may do better
                said[server] = str(problem) or type(problem).__name__
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


def _open(settings: ClusterSettings, server: str, timeout_s: float) -> Any:
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
            **security,
        )
    except BaseException:
        # Its constructor has started a thread by now and would leave it running.
        if hasattr(admin, "_net"):
            admin._client.close()
            admin._net.stop()
        raise
    return admin


def ask_controller(admin: Any, broker: int, timeout_s: float) -> Probe:
    """Ask one broker Metadata and, three times over, ListPartitionReassignments, on one connection."""
    from kafka.protocol.admin import ListPartitionReassignmentsRequest
    from kafka.protocol.metadata import MetadataRequest

    timeout_ms = round(timeout_s * 1000)

    def send(request: Any) -> Any:
        # On the broker's own connection, so that Metadata is a fair control for the other request.
        return admin._manager.run(lambda: admin._manager.send(request, node_id=broker, request_timeout_ms=timeout_ms))

    try:
        controller = int(send(MetadataRequest(topics=[], allow_auto_topic_creation=False)).controller_id)
    except Exception as problem:
        return Probe(broker, reachable=True, metadata=False, queue=None, detail=f"Metadata: {problem}")
    detail, refused = "", False
    for _ in range(_PROBES):
        try:
            answer = send(ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None))
        except Exception as problem:
            detail, refused = f"ListPartitionReassignments: {problem}", False
            continue
        if answer.error_code == 0:
            return Probe(broker, True, True, True, controller)
        detail, refused = f"ListPartitionReassignments: {translate.code(answer.error_code).name}", True
    return Probe(broker, True, True, False, controller, detail, refused)
