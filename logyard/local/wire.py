"""Sends two requests, ApiVersions and Metadata, to see whether a broker serves.

The launcher imports no broker code, so that a broker is not checked by its own client code.
"""

import socket
import struct
from dataclasses import dataclass

from logyard.local.wire_login import Ask, Credentials, LoginRefused

API_VERSIONS, METADATA = 18, 3
METADATA_VERSION = 1  # the first that names the controller
RESPONSE_BYTES_MAX = 64 << 20
CLIENT_ID = b"logyard-launcher"


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as one broker describes it: address by broker id, and the controller (-1: none known)."""

    brokers: dict[int, tuple[str, int]]
    controller: int


class WireError(Exception):
    """The peer does not answer, or not as a Kafka broker does."""


class Refused(WireError):
    """Nothing listens at that port."""


def ask_api_versions(
    host: str, port: int, timeout_s: float = 2.0, credentials: Credentials | None = None
) -> dict[int, tuple[int, int]]:
    """Return the APIs that a broker advertises: lowest and highest version by key. Raises WireError."""
    body = _ask(host, port, API_VERSIONS, 0, b"", timeout_s, credentials)
    try:
        code, count = struct.unpack_from(">hi", body)
        if code != 0:
            raise WireError(f"{host}:{port} answers ApiVersions with error {code}")
        ranges = [struct.unpack_from(">hhh", body, 6 + 6 * index) for index in range(count)]
    except struct.error as error:
        raise WireError(f"{host}:{port} answers ApiVersions with something else") from error
    return {key: (lowest, highest) for key, lowest, highest in ranges}


def ask_metadata(host: str, port: int, timeout_s: float = 2.0, credentials: Credentials | None = None) -> View:
    """Return the brokers and the controller in a broker's metadata. Raises WireError."""
    no_topics = struct.pack(">i", 0)
    return parse_metadata(_ask(host, port, METADATA, METADATA_VERSION, no_topics, timeout_s, credentials))


def parse_metadata(body: bytes) -> View:
    """Decode the brokers and the controller of a Metadata response, version 1, without its header."""
    try:
        (count,) = struct.unpack_from(">i", body)
        position, brokers = 4, {}
        for _ in range(count):
            (broker,) = struct.unpack_from(">i", body, position)
            host, position = _string(body, position + 4)
            (port,) = struct.unpack_from(">i", body, position)
            _rack, position = _string(body, position + 4)
            brokers[broker] = (host or "", port)
        (controller,) = struct.unpack_from(">i", body, position)
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError("a Metadata response that cannot be read") from error
    return View(brokers, controller)


def _string(body: bytes, position: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", body, position)
    if size < 0:
        return None, position + 2
    end = position + 2 + size
    return body[position + 2 : end].decode("utf-8"), end


def _ask(
    host: str, port: int, api: int, version: int, body: bytes, timeout_s: float, credentials: Credentials | None
) -> bytes:
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as plain:
            if credentials is None:
                return _asker(plain, f"{host}:{port}")(api, version, body)
            with credentials.secure(plain, host) as link:
                ask = _asker(link, f"{host}:{port}")
                credentials.log_in(ask)
                return ask(api, version, body)
    except ConnectionRefusedError as error:
        raise Refused(f"{host}:{port} does not answer: nothing listens there") from error
    except (LoginRefused, struct.error, ValueError, KeyError) as error:
        raise WireError(f"{host}:{port} lets the launcher not log in: {error}") from error
    except OSError as error:
        raise WireError(f"{host}:{port} does not answer: {error}") from error


def _asker(link: socket.socket, address: str) -> Ask:
    def ask(api: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhih", api, version, 1, len(CLIENT_ID)) + CLIENT_ID + body
        link.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _exactly(link, 4))
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise WireError(f"{address} announces a response of {size} bytes: no Kafka broker")
        return _exactly(link, size)[4:]

    return ask


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            raise WireError("the connection was closed in the middle of a response")
        parts += part
    return bytes(parts)
