"""ZooKeeper's answers as bytes: what differs between its versions."""

import struct

from logyard.broker.zk import requests
from logyard.broker.zk.requests import CREATE, CREATE2, SET_DATA, Multi
from logyard.broker.znodes.ops import Create, OpResult, SetData, ZkCode

STAT = struct.pack("!qqqqiiiqiiq", 77, 77, 1, 2, 1, 0, 0, 0, 1, 0, 77)
END = struct.pack("!iBi", -1, 1, -1)


def answer(kind: int, content: bytes) -> bytes:
    return struct.pack("!iBi", kind, 0, 0) + content


def text(path: str) -> bytes:
    return struct.pack("!i", len(path)) + path.encode()


def test_a_created_znode_has_its_stat() -> None:
    said = answer(CREATE2, text("/root/a") + STAT) + answer(SET_DATA, STAT) + END
    found = Multi([Create("/a"), SetData("/a", b"x", 0)], "/root").deserialize(b"head" + said, 4)
    assert found == [OpResult(ZkCode.OK, "/a", 1, 77), OpResult(ZkCode.OK, "/a", 1, 77)]


def test_zookeeper_3_8_0_answers_without_the_stat() -> None:
    said = answer(CREATE, text("/root/a0000000003")) + answer(SET_DATA, STAT) + END
    found = Multi([Create("/a", sequential=True), SetData("/b", b"x", 0)], "/root").deserialize(said, 0)
    assert found == [OpResult(ZkCode.OK, "/a0000000003", 0), OpResult(ZkCode.OK, "/b", 1, 77)]


def test_reads_of_long_paths_are_split_below_what_a_server_takes() -> None:
    short = [f"/brokers/topics/t/partitions/{n}/state" for n in range(1200)]
    assert [len(portion) for portion in requests.read_portions(short)] == [500, 500, 200]
    long = [f"/config/users/{n}{'%20' * 10_000}" for n in range(100)]
    found = list(requests.read_portions(long))
    assert [path for portion in found for path in portion] == long
    assert all(len(requests.MultiRead(requests.GET_DATA, portion).body()) < 1 << 20 for portion in found)
    assert len(found) < 20
    assert list(requests.read_portions(["/" + "a" * 2_000_000])) == [["/" + "a" * 2_000_000]]
    assert list(requests.read_portions([])) == []
