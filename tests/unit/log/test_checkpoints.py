"""The small text files, byte for byte."""

import uuid

import pytest

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.log import checkpoints
from logyard.broker.log.checkpoints import DirectoryIdentity
from logyard.broker.log.leader_epochs import EpochEntry
from logyard.broker.model import TopicPartition


def test_offsets() -> None:
    offsets = {TopicPartition("flights", 0): 12, TopicPartition("a.b", 3): 9007199254740993}
    data = b"0\n2\nflights 0 12\na.b 3 9007199254740993\n"
    assert checkpoints.encode_offsets(offsets) == data
    assert checkpoints.decode_offsets(data) == offsets
    assert checkpoints.encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_a_file_without_entries(data: bytes) -> None:
    assert checkpoints.decode_offsets(data) == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"1\n0\n", "version '1'"),
        (b"1\n", "version '1'"),
        (b"0\n2\nt 0 1\n", "1 entries, the file says 2"),
        (b"0\n0\nt 0 1\n", "1 entries, the file says 0"),
        (b"0\n1\nt 0\n", "3 words"),
        (b"0\n1\nt x 1\n", "'x'"),
        (b"0\nmany\n", "'many'"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_damaged_offsets_say_what_is_wrong(data: bytes, why: str) -> None:
    with pytest.raises(CorruptData, match=why):
        checkpoints.decode_offsets(data)


def test_epochs() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(4, 2100)]
    assert checkpoints.encode_epochs(entries) == b"0\n2\n0 0\n4 2100\n"
    assert checkpoints.decode_epochs(b"0\n2\n0 0\n4 2100\n") == entries
    with pytest.raises(CorruptData, match="follows"):
        checkpoints.decode_epochs(b"0\n2\n4 0\n3 10\n")


def test_partition_metadata_has_no_newline_at_its_end() -> None:
    topic_id = uuid.UUID(bytes=bytes(range(16)))
    data = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.encode_partition_metadata(topic_id) == data
    assert checkpoints.decode_partition_metadata(data) == topic_id


@pytest.mark.parametrize(
    "data",
    [
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"",
        b"version: 0",
    ],
)
def test_damaged_partition_metadata(data: bytes) -> None:
    with pytest.raises(CorruptData):
        checkpoints.decode_partition_metadata(data)


def test_meta_properties() -> None:
    identity = DirectoryIdentity(3, "Zk7pQ1TkRd6Yh1m0e5wGxA")
    data = b"#\n#Tue Nov 14 22:13:20 UTC 2023\nversion=0\nbroker.id=3\ncluster.id=Zk7pQ1TkRd6Yh1m0e5wGxA\n"
    assert checkpoints.encode_meta_properties(identity, 1_700_000_000_000) == data
    assert checkpoints.decode_meta_properties(data) == identity


def test_meta_properties_of_others_are_understood_and_unknown_keys_kept() -> None:
    data = b"! old\n\ncluster.id : abc\\=\n  broker.id= 7\nversion=0\ndirectory.id=x y\n"
    identity = checkpoints.decode_meta_properties(data)
    assert identity == DirectoryIdentity(7, "abc=", {"directory.id": "x y"})
    again = checkpoints.decode_meta_properties(checkpoints.encode_meta_properties(identity, 0))
    assert again == identity


@pytest.mark.parametrize("data", [b"", b"version\n", b"\xff\x00 garbage", b"\0" * 60])
def test_empty_meta_properties_belong_to_nobody(data: bytes) -> None:
    assert checkpoints.decode_meta_properties(data) == DirectoryIdentity(None, None)


@pytest.mark.parametrize("data", [b"version=1\nnode.id=1\n", b"version=0\nbroker.id=x\n"])
def test_meta_properties_that_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        checkpoints.decode_meta_properties(data)


def test_directories_of_another_cluster_or_broker_are_refused() -> None:
    DirectoryIdentity(None, None).check("mine", 1)
    DirectoryIdentity(1, "mine").check("mine", 1)
    with pytest.raises(LogyardError, match="belong to cluster theirs, ZooKeeper to mine"):
        DirectoryIdentity(1, "theirs").check("mine", 1)
    with pytest.raises(LogyardError, match=r"belong to broker 2, broker\.id is 1"):
        DirectoryIdentity(2, "mine").check("mine", 1)
