"""One request over a plain socket, written and read by the broker's own codec: for APIs that no stock client has."""

import socket
from typing import Any

from logyard.broker.protocol import codec


def ask(address: str, api_key: int, version: int, fields: dict[str, Any], client_id: str = "test") -> Any:
    """Return the decoded answer of the broker at `host:port`."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(codec.encode_request(api_key, version, 1, client_id, fields))
        size = int.from_bytes(whole(sock, 4), "big")
        return codec.decode_response(api_key, version, memoryview(whole(sock, size)))[1]


def whole(sock: socket.socket, size: int) -> bytes:
    """Read so many bytes. Raises ConnectionError at the end of the stream."""
    found = b""
    while len(found) < size:
        more = sock.recv(size - len(found))
        if not more:
            raise ConnectionError("the broker closed the connection")
        found += more
    return found
