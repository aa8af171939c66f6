"""A consumer group of many members by bare requests, so that the time is the coordinator's and not the clients'."""

import socket
import struct
import time
import uuid
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.protocol import codec
from tests.support.real_cluster import RealCluster, eventually

FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP = 10, 11, 14
VERSIONS = {FIND_COORDINATOR: 2, JOIN_GROUP: 5, SYNC_GROUP: 3}
ASSIGNMENT = b"\0" * 60


class Wire:
    """One member's connection: a request sent, its answer taken later."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def answer(self) -> bytes:
        (size,) = struct.unpack(">i", self._file.read(4))
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def frame(api_key: int, fields: dict[str, Any]) -> bytes:
    return bytes(codec.encode_request(api_key, VERSIONS[api_key], 1, "bench", fields))


def answer(api_key: int, wire: Wire) -> Any:
    return codec.decode_response(api_key, VERSIONS[api_key], memoryview(wire.answer()))[1]


def coordinator(cluster: RealCluster, group: str) -> tuple[str, int]:
    """Where that group's coordinator serves, as soon as there is one."""
    host, _, port = cluster.bootstrap.split(",")[0].partition(":")

    def found() -> Any:
        wire = Wire(host, int(port))
        try:
            wire.send(frame(FIND_COORDINATOR, {"key": group, "key_type": 0}))
            told = answer(FIND_COORDINATOR, wire)
        finally:
            wire.close()
        return told if told.error_code == 0 else None

    told = eventually(found, "a coordinator", 60)
    return told.host, told.port


class Group:
    """`count` members, each with a connection of its own, in one group that is stable after `form`."""

    def __init__(self, cluster: RealCluster, count: int) -> None:
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        host, port = coordinator(cluster, self.name)
        self._wires = [Wire(host, port) for _ in range(count)]
        self._ids = [""] * count
        self._leader = 0
        self._round = 0

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def form(self) -> None:
        """Every member is given its id; then all join together (within the initial delay) and sync."""
        for wire in self._wires:
            wire.send(self._join(0))
        for number, wire in enumerate(self._wires):
            told = answer(JOIN_GROUP, wire)
            assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED, told
            self._ids[number] = told.member_id
        self.rebalance()

    def rebalance(self) -> float:
        """All join with new subscriptions and take their assignments; seconds from the first request to the last."""
        self._round += 1
        begun = time.perf_counter()
        for number, wire in enumerate(self._wires):
            wire.send(self._join(number))
        joined = [answer(JOIN_GROUP, wire) for wire in self._wires]
        assert {told.error_code for told in joined} == {0}, [told.error_code for told in joined]
        assert len({told.generation_id for told in joined}) == 1
        self._leader = self._ids.index(joined[0].leader)
        assert len(joined[self._leader].members) == len(self._ids)
        for number, told in enumerate(joined):
            given = [{"member_id": i, "assignment": ASSIGNMENT} for i in self._ids] if number == self._leader else []
            fields = {"group_id": self.name, "generation_id": told.generation_id, "member_id": self._ids[number]}
            self._wires[number].send(frame(SYNC_GROUP, {**fields, "group_instance_id": None, "assignments": given}))
        synced = [answer(SYNC_GROUP, wire) for wire in self._wires]
        assert all(told.error_code == 0 and told.assignment == ASSIGNMENT for told in synced)
        return time.perf_counter() - begun

    def _join(self, number: int) -> bytes:
        return frame(
            JOIN_GROUP,
            {
                "group_id": self.name,
                "session_timeout_ms": 60_000,
                "rebalance_timeout_ms": 60_000,
                "member_id": self._ids[number],
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": self._round.to_bytes(60, "big")}],
            },
        )
