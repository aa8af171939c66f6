"""/consumers: the paths, and what is read from znodes that anybody may have written."""

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import consumers
from logyard.broker.znodes.consumers import Registration


def test_paths() -> None:
    assert consumers.partition_path("g", consumers.OFFSETS, TopicPartition("t", 3)) == "/consumers/g/offsets/t/3"
    assert consumers.consumer_path("g", "c") == "/consumers/g/ids/c"


@pytest.mark.parametrize("name", ["g", "a/b", "...", "a..b", " ", "ü", "￯", "consumer group"])
def test_what_a_group_may_be_called(name: str) -> None:
    assert consumers.is_path(consumers.group_path(name))


@pytest.mark.parametrize(
    "name", ["", "/", "a//b", "a/", ".", "..", "a/../b", "\0", "\x1f", "\x7f", "\x9f", "\ud800", "\ue000", "￰", "😀"]
)
def test_what_zookeeper_would_refuse(name: str) -> None:
    assert not consumers.is_path(consumers.part_path(name, consumers.OFFSETS))


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"0", 0), (b"-1", -1), (b"+7", 7), (b"007", 7), (b"9223372036854775807", 2**63 - 1), ("٤٢".encode(), 42)],
)
def test_an_offset_is_read_as_java_does(data: bytes, offset: int) -> None:
    assert consumers.decode_offset(data, "/p") == offset


@pytest.mark.parametrize(
    "data",
    [b"", b" 1", b"1\n", b"1_0", b"1.0", b"0x1", b"--1", b"-", b"9223372036854775808", b"\xff", b"1" * 2_000_000],
)
def test_anything_else_is_no_offset(data: bytes) -> None:
    with pytest.raises(CorruptData, match="znode /p: an offset is expected"):
        consumers.decode_offset(data, "/p")


def test_registrations_and_owners() -> None:
    data = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1"}'
    assert consumers.decode_registration(data, "/p") == Registration("static", {"t": 2})
    for wrong in (
        b"",
        b"[]",
        b"{}",
        b'{"pattern":1,"subscription":{}}',
        b'{"pattern":"static","subscription":{"t":"2"}}',
    ):
        with pytest.raises(CorruptData, match="/p"):
            consumers.decode_registration(wrong, "/p")
    assert [consumers.decode_owner(d) for d in (b"g_host-1-ab-0", b"x", b"", b"\xff-0")] == [
        "g_host-1-ab",
        "x",
        "",
        "�",
    ]
