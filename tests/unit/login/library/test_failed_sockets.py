"""Sockets that kafka-python could not connect are closed."""

import socket
import time
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net import inet
from kafka.net.selector import NetworkSelector

from logyard.admin.cluster import connection
from logyard.admin.settings import ClusterSettings
from logyard.login.library.failed_sockets import direct


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The sockets that kafka-python makes."""
    found: list[socket.socket] = []
    make = inet.KafkaNetSocket.socket

    def kept(self: Any, *kind: Any) -> socket.socket:
        found.append(make(self, *kind))
        return found[-1]

    monkeypatch.setattr(inet.KafkaNetSocket, "socket", kept)
    return found


@pytest.mark.parametrize("mended", [True, False])
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_socket_that_does_not_connect_is_closed(made: list[socket.socket], is_refused: bool, mended: bool) -> None:
    """Where nothing listens, and where nobody takes connections until the time is over."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        place = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        if is_refused:
            server.close()
        net, url = NetworkSelector(), direct() if mended else None

        async def connect() -> Any:
            return await inet.create_connection(net, *place, proxy_url=url, timeout_at=time.monotonic() + 0.2)

        with pytest.raises(KafkaConnectionError, match="ECONNREFUSED" if is_refused else "timed out"):
            net.run(connect)
        net.close()
        for one in waiting:
            one.close()
    (tried,) = made
    if mended:
        assert tried.fileno() == -1
    else:
        assert tried.fileno() >= 0, "kafka-python is mended: `direct` is not needed any more"
        tried.close()


def test_our_clients_connect_so(made: list[socket.socket]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(Exception, match="bootstrap"):
        connection.open_by(ClusterSettings.read(place), place, 0.3)
    assert made
    assert {one.fileno() for one in made} == {-1}
