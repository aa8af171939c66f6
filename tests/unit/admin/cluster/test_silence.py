"""Why nobody answers, in words: without numbers of the system and names of a library's classes."""

import errno
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kafka import errors as theirs

from logyard.admin.cluster import connection
from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.connection import by_reason, connect
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ApiError
from logyard.local.ports import HOST
from logyard.login.meanings import plain, silence


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (theirs.NodeNotReadyError(3), "no connection to broker 3"),
        (theirs.NodeNotReadyError("bootstrap-0"), "no connection to a broker"),
        (theirs.KafkaTimeoutError("60 s"), "no answer in time"),
        (theirs.KafkaConnectionError("socket disconnected"), "the connection was lost (socket disconnected)"),
        (theirs.KafkaConnectionError(), "the connection was lost"),
    ],
)
def test_kafka_pythons_errors_are_words(problem: Exception, said: str) -> None:
    assert silence(problem) == said


def test_servers_with_one_reason_share_it() -> None:
    refused = plain(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))
    assert refused == "connection refused"
    assert by_reason({"a:1": refused, "b:1": "no route to host", "c:1": refused}) == (
        "a:1, c:1 (connection refused); b:1 (no route to host)"
    )


def test_who_refuses_connections_has_seen_no_password() -> None:
    closed = [f"{HOST}:1", f"{HOST}:2"]
    settings = ClusterSettings.read(",".join(closed), {"request_timeout_s": 1})
    with pytest.raises(ClusterUnreachable) as raised:
        connect(settings, closed, 0.1)
    assert str(raised.value) == (
        f"no broker answered: {HOST}:1, {HOST}:2 (connection refused); check that they run, and their addresses"
    )


@pytest.mark.parametrize(("timeout_s", "notices"), [(0.6, 1), (0.1, 0)])
def test_who_waits_long_is_told_for_what(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, timeout_s: float, notices: int
) -> None:
    """A server that takes connections and is silent takes all of the time."""
    monkeypatch.setattr(connection, "NOTICE_S", 0.1)
    with socket.create_server((HOST, 0)) as silent:
        place = f"{HOST}:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=r"\(no answer in time\)"):
            connect(ClusterSettings.read(place, {"request_timeout_s": 0.1}), [place], timeout_s)
    said = [record.message for record in caplog.records if record.name == connection.__name__]
    assert said == [f"no answer yet from {place}: it is tried for 1 s"] * notices


# None of them makes the resolver ask DNS: there is no such interface, and a name has no empty part.
NAMELESS = ["[fe80::1%nosuch]:9092", "a..b:9092"]


class _Waits(Exception):
    """Instead of the pause before another attempt."""


def wait(seconds: float) -> None:
    raise _Waits


def test_servers_without_a_name_that_resolves_are_given_up_or_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.admin.cluster.connection.time.sleep", wait)
    patient = ClusterSettings.read(",".join(NAMELESS))
    hasty = replace(patient, waits_for_names=False)
    with pytest.raises(ClusterUnreachable, match=r"a\.\.b:9092 .*; no name resolves: check the addresses, and DNS$"):
        connect(hasty, NAMELESS, 60)
    with pytest.raises(_Waits):
        connect(patient, NAMELESS, 60)
    with pytest.raises(_Waits):
        connect(hasty, [*NAMELESS, f"{HOST}:1"], 60)
    with pytest.raises(ClusterUnreachable, match="check that they run, and their addresses"):
        connect(hasty, [*NAMELESS, f"{HOST}:1"], 0)


def told_by(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], object]) -> None:
    """Ask by a connection on which every request ends so."""
    made = SimpleNamespace(send=lambda request, node: answer(), refresh=lambda: None)
    monkeypatch.setattr("logyard.admin.cluster.connection.connect", lambda *_: made)
    KafkaClusterClient(ClusterSettings.read("a:1", {"total_timeout_s": 0})).snapshot([])


@pytest.mark.parametrize("answer", [lambda: struct.pack(">i", 99_999_999_999), lambda: "t\udcff".encode()])
def test_what_no_request_has_room_for_is_refused(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], object]) -> None:
    with pytest.raises(ApiError, match=r"no request can say this: .*(format requires|surrogates)"):
        told_by(monkeypatch, answer)


@pytest.mark.parametrize("answer", [lambda: struct.unpack(">i", b"123"), lambda: b"t\xff".decode()])
def test_an_answer_that_is_cut_or_damaged_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[], object]
) -> None:
    with pytest.raises(ClusterUnreachable, match="its answer cannot be read"):
        told_by(monkeypatch, answer)
