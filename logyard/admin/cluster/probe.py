"""Asking brokers one by one whether they answer, and whether a controller's queue of events works."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from logyard.admin.cluster.connection import Connection, open_by
from logyard.admin.cluster.sign_of_life import first_sign
from logyard.admin.recovery.witnesses import Probe, Queue, Wire
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ErrorCode
from logyard.login.meanings import meaning

_THREADS_MAX = 16
_TRIES = 3


def probe_brokers(
    settings: ClusterSettings, addresses: Mapping[int, tuple[str, int]], timeout_s: float
) -> dict[int, Probe]:
    """Ask brokers Metadata (control) and ListPartitionReassignments (the controller's queue), three tries.

    Each broker is asked on its own connection, so that back-off for others does not delay it; many at a time.
    """
    if not addresses:
        return {}
    with ThreadPoolExecutor(min(len(addresses), _THREADS_MAX), "logyard-probe") as pool:
        asked = {b: pool.submit(_probe, settings, b, host, port, timeout_s) for b, (host, port) in addresses.items()}
        return {broker: answer.result() for broker, answer in asked.items()}


def _probe(settings: ClusterSettings, broker: int, host: str, port: int, timeout_s: float) -> Probe:
    wire, detail = first_sign(settings, host, port, timeout_s)
    if wire is not Wire.ANSWERS:
        return Probe(broker, wire, detail=detail)
    try:
        opened = open_by(replace(settings, request_timeout_s=timeout_s), f"{host}:{port}", timeout_s)
    except Exception as problem:  # any error tells something about the broker, or about this side
        found = Probe(broker, wire_of(problem), detail=str(problem.__cause__ or problem))
    else:
        try:
            found = ask_controller(opened, broker, timeout_s)
        finally:
            opened.close()
    if found.queue is Queue.ANSWERS:
        return found
    # A dying process may accept a last connection; a dead broker must not count as hung or alive.
    wire, detail = first_sign(settings, host, port, timeout_s)
    return found if wire is Wire.ANSWERS else Probe(broker, wire, detail=detail)


def ask_controller(connection: Connection, broker: int, timeout_s: float) -> Probe:
    """Ask one broker Metadata and, three times over, ListPartitionReassignments, on one connection."""
    from kafka import errors as theirs
    from kafka.protocol.admin import ListPartitionReassignmentsRequest
    from kafka.protocol.metadata import MetadataRequest

    timeout_ms = round(timeout_s * 1000)

    def send(request: Any) -> Any:
        # On the same connection, so that Metadata is a valid control for the other request.
        return connection.send(request, broker, timeout_ms)

    try:
        answer = send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    except theirs.UnknownBrokerIdError:
        # It answered Metadata at bootstrap but is not in its own list: not registered, or only just.
        return Probe(broker, Wire.ANSWERS, cluster_id=connection.cluster_id)
    except Exception as problem:
        return Probe(broker, wire_of(problem), detail=f"Metadata: {problem}")
    heard = Probe(broker, Wire.ANSWERS, Queue.SILENT, int(answer.controller_id), answer.cluster_id)
    for _ in range(_TRIES):
        try:
            listed = send(ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None))
        except Exception as problem:
            heard = replace(heard, queue=Queue.SILENT, detail=f"ListPartitionReassignments: {problem}")
            continue
        code = ErrorCode(listed.error_code)
        if code is ErrorCode.NONE:
            return replace(heard, queue=Queue.ANSWERS, detail="")
        forbidden = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        queue = Queue.FORBIDDEN if forbidden else Queue.REFUSES
        heard = replace(heard, queue=queue, detail=f"ListPartitionReassignments: {meaning(code)}")
        if forbidden:
            break
    return heard


def wire_of(problem: BaseException) -> Wire:
    """Return what an error of kafka-python means for a broker that gave a sign of life just before."""
    from kafka import errors as theirs

    silent = (theirs.RequestTimedOutError, theirs.KafkaTimeoutError, TimeoutError)
    return Wire.SILENT if isinstance(problem.__cause__ or problem, silent) else Wire.REFUSES
