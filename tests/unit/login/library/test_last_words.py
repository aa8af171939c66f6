"""kafka-python hears an answer that arrives together with the end of the connection."""

import socket
from typing import Any

import pytest
from kafka.net.transport import KafkaTCPTransport

from logyard.login.library.last_words import hear_last_words


@pytest.mark.parametrize("mended", [True, False])
def test_the_answer_comes_before_the_end(mended: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    class Transport(KafkaTCPTransport):  # type: ignore[misc]  # kafka-python has no types
        def receive(self) -> Any:
            return self._sock_recv()

    transport = Transport(None, ours, host="broker")
    if mended:
        transport = hear_last_words(transport)
    theirs.sendall(b"refused")
    theirs.close()
    first, problem = transport.receive()
    assert first == b"refused"
    if not mended:
        assert problem is not None, "kafka-python is mended: hear_last_words is not needed any more"
        return
    assert problem is None
    for _ in range(2):
        data, problem = transport.receive()
        assert (data, "disconnected" in str(problem)) == (b"", True)
    ours.close()
