"""Names, as Kafka spells them (facts §12)."""

import uuid

import pytest

from logyard.broker.log import layout
from logyard.broker.log.layout import DirectoryKind
from logyard.broker.model import TopicPartition

UNIQUE = uuid.UUID("0123456789abcdef0123456789abcdef")


def test_segment_files() -> None:
    assert layout.file_name(42, layout.LOG) == "00000000000000000042.log"
    assert layout.file_name(2**63 - 1, layout.TIME_INDEX, layout.SWAP) == "09223372036854775807.timeindex.swap"


@pytest.mark.parametrize(
    "name", ["42.log", "00000000000000000042.txt", "00000000000000000042.log.tmp", "leader-epoch-checkpoint", "x.log"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert layout.parse_file_name(name) is None


@pytest.mark.parametrize("kind", [*layout.SEGMENT_KINDS, layout.SNAPSHOT])
@pytest.mark.parametrize("suffix", ["", layout.DELETED, layout.CLEANED, layout.SWAP, layout.NEW])
def test_file_names_are_read_back(kind: str, suffix: str) -> None:
    assert layout.parse_file_name(layout.file_name(7, kind, suffix)) == (7, kind, suffix)


def test_partition_directories() -> None:
    tp = TopicPartition("a-b.c-1", 12)
    assert layout.directory_name(tp) == "a-b.c-1-12"
    assert layout.parse_directory_name("a-b.c-1-12") == (tp, DirectoryKind.LIVE)
    deleted = layout.marked_directory_name(tp, UNIQUE, DirectoryKind.DELETED)
    assert deleted == "a-b.c-1-12.0123456789abcdef0123456789abcdef-delete"
    for kind in (DirectoryKind.DELETED, DirectoryKind.FUTURE, DirectoryKind.STRAY):
        assert layout.parse_directory_name(layout.marked_directory_name(tp, UNIQUE, kind)) == (tp, kind)


@pytest.mark.parametrize("name", ["lost+found", "t-", "-1", "t-x", "t-1-delete", "t"])
def test_other_directories_are_no_partitions(name: str) -> None:
    assert layout.parse_directory_name(name) is None


def test_a_long_topic_is_cut_so_that_the_name_has_255_bytes() -> None:
    tp = TopicPartition("n" * 249, 0)
    name = layout.marked_directory_name(tp, UNIQUE, DirectoryKind.DELETED)
    assert len(name) == 255
    assert name.startswith("n" * 213 + "-0.")
