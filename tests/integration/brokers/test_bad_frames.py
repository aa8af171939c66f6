"""Frames that make no sense, sent to a real broker: it closes the connection, says so, and lives on (facts §19)."""

import random
import socket
import struct

import pytest

from logyard.broker.protocol import codec
from logyard.broker.server.api_table import VERSIONS
from tests.support.messages import filled
from tests.support.real_cluster import RealCluster
from tests.support.wire_client import ask

API_VERSIONS, HEARTBEAT = 18, 12
NAMED = {"client_software_name": "a-test", "client_software_version": "1"}


def address(cluster: RealCluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    return host, int(port)


def closes(cluster: RealCluster, data: bytes) -> bool:
    """Whether the broker closes a connection over which `data` came, without a word."""
    with socket.create_connection(address(cluster), timeout=10) as sock:
        sock.sendall(data)
        try:
            return sock.recv(1) == b""
        except ConnectionError:
            return True


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        sized(b""),
        sized(b"\0"),
        sized(struct.pack(">hhih", HEARTBEAT, 0, 1, 500) + b"short"),
        sized(struct.pack(">hhih", 9999, 0, 1, -1)),
        sized(struct.pack(">hhih", HEARTBEAT, 99, 1, -1)),
        sized(struct.pack(">hhih", HEARTBEAT, 0, 1, -1) + b"\x7f\xff"),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_a_frame_that_makes_no_sense_closes_its_connection_only(cluster: RealCluster, data: bytes) -> None:
    assert closes(cluster, data)
    assert ask(cluster.bootstrap.split(",")[0], API_VERSIONS, 3, NAMED).error_code == 0


def test_a_version_of_api_versions_from_the_future_is_answered(cluster: RealCluster) -> None:
    with socket.create_connection(address(cluster), timeout=10) as sock:
        sock.sendall(sized(struct.pack(">hhih", API_VERSIONS, 99, 7, -1) + b"\0\0"))
        answer = sock.recv(1000)
    assert struct.unpack_from(">iih", answer, 0)[1:] == (7, 35)


def test_requests_cut_and_damaged_at_random_never_end_the_broker(cluster: RealCluster) -> None:
    chance = random.Random(5)
    changing = (4, 5, 6, 7, 19, 20, 33, 34, 37, 43, 44, 45, 49, 56, 57, 67)  # the cluster is not ours alone
    clients_apis = [key for key in VERSIONS if key not in changing]
    for _ in range(150):
        key = chance.choice(clients_apis)
        version = chance.randint(*VERSIONS[key])
        frame = bytearray(codec.encode_request(key, version, 1, "c", filled(key, "Request", version, 1))[4:])
        for _n in range(chance.randint(1, 4)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        frame[:2] = key.to_bytes(2, "big")
        del frame[chance.randint(2, len(frame)) :]
        with socket.create_connection(address(cluster), timeout=10) as sock:
            sock.settimeout(0.02)
            sock.sendall(sized(bytes(frame)))
            try:
                sock.recv(10)
            except (TimeoutError, ConnectionError):
                continue
    for broker in cluster.bootstrap.split(","):
        assert ask(broker, API_VERSIONS, 3, NAMED).error_code == 0
