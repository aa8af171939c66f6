"""What is in memory of a file, and what is not: asked of the machine itself."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.broker.log.disk import page_cache
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.real import OsDisk

PAGE = mmap.PAGESIZE
SIZE = 64 * PAGE


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A file that is on the disk, and in memory."""
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, os.urandom(SIZE))
    os.fsync(fd)
    if not page_cache.can_tell(fd):
        pytest.skip("this file system does not tell what is in memory")
    yield fd
    os.close(fd)


def forget(fd: int, position: int = 0, size: int = 0) -> None:
    """Let the system drop these bytes from memory (0: all of them)."""
    os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize(("size", "position"), [(SIZE, 0), (1, 0), (1, SIZE - 1), (PAGE + 2, PAGE - 1), (SIZE - 5, 5)])
def test_what_was_written_is_in_memory(descriptor: int, size: int, position: int) -> None:
    assert page_cache.is_in_memory(descriptor, size, position)


def test_what_was_dropped_is_not(descriptor: int) -> None:
    forget(descriptor)
    assert not page_cache.is_in_memory(descriptor, 1, 0)
    assert not page_cache.is_in_memory(descriptor, SIZE, 0)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    os.pread(descriptor, 1, 5 * PAGE)
    assert page_cache.is_in_memory(descriptor, PAGE, 5 * PAGE)
    assert not page_cache.is_in_memory(descriptor, PAGE + 1, 5 * PAGE)
    assert not page_cache.is_in_memory(descriptor, 2, 5 * PAGE - 1)


def test_what_is_behind_the_end_is_not(descriptor: int) -> None:
    assert not page_cache.is_in_memory(descriptor, 1, SIZE)
    assert not page_cache.is_in_memory(descriptor, SIZE + 1, 0)


def test_no_address_space_is_left_behind(descriptor: int) -> None:
    def used() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0])

    page_cache.is_in_memory(descriptor, SIZE, 0)
    before = used()
    for _ in range(1000):
        page_cache.is_in_memory(descriptor, SIZE, 0)
    assert used() - before < 500 * SIZE // PAGE


def test_of_a_file_of_others_the_system_says_that_all_is_there(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.fstat(descriptor).st_uid + 1)
    assert not page_cache.can_tell(descriptor)


def test_a_file_system_that_cannot_read_without_waiting(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "preadv", refused)
    assert not page_cache.can_tell(descriptor)


def test_a_system_that_says_of_all_that_it_is_there(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache.Calls, "are_in_memory", lambda *_: True)
    page_cache.calls.cache_clear()
    try:
        assert not page_cache.can_tell(descriptor)
        assert not page_cache.is_in_memory(descriptor, 1, 0)
    finally:
        page_cache.calls.cache_clear()


def test_files(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "f"), create=True, write=True)
    file.write_at(b"x" * SIZE, 0)
    file.sync()
    fd = file.sendable(SIZE, 0)
    assert fd is not None
    assert os.pread(fd, 3, 0) == b"xxx"
    forget(fd)
    assert file.sendable(SIZE, 0) is None
    memory = MemoryDisk()
    memory.make_directory("/root")
    twin = memory.open("/root/f", create=True, write=True)
    twin.write_at(b"x", 0)
    assert twin.sendable(1, 0) is None
