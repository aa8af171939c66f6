"""What is in memory of a file, and what is not: asked of the machine itself."""

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from logyard.broker.log.disk import page_cache
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import DiskError, DiskFile
from logyard.broker.log.disk.real import OsDisk

PAGE = mmap.PAGESIZE
SIZE = 64 * PAGE


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A file that is on the disk, and in memory."""
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, os.urandom(SIZE))
    os.fsync(fd)
    if page_cache.pages_of(fd) is None:
        pytest.skip("this file system does not tell what is in memory")
    yield fd
    os.close(fd)


def pages_of(fd: int) -> page_cache.FilePages:
    pages = page_cache.pages_of(fd)
    assert pages is not None
    return pages


def written(directory: Path, size: int) -> DiskFile:
    """A file of the broker's."""
    file = OsDisk().open(str(directory / "f"), create=True, write=True)
    file.write_at(b"x" * size, 0)
    return file


def failing(number: int) -> Callable[..., NoReturn]:
    """A system call that ends with this error."""

    def fails(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fails


def forget(fd: int, position: int = 0, size: int = 0) -> None:
    """Let the system drop these bytes from memory (0: all of them)."""
    os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize(("size", "position"), [(SIZE, 0), (1, 0), (1, SIZE - 1), (PAGE + 2, PAGE - 1), (SIZE - 5, 5)])
def test_what_was_written_is_in_memory(descriptor: int, size: int, position: int) -> None:
    assert pages_of(descriptor).are_in_memory(size, position)


def test_what_was_dropped_is_not(descriptor: int) -> None:
    pages = pages_of(descriptor)
    forget(descriptor)
    assert not pages.are_in_memory(1, 0)
    assert not pages.are_in_memory(SIZE, 0)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    os.pread(descriptor, 1, 5 * PAGE)
    assert pages.are_in_memory(PAGE, 5 * PAGE)
    assert not pages.are_in_memory(PAGE + 1, 5 * PAGE)
    assert not pages.are_in_memory(2, 5 * PAGE - 1)


def test_what_is_behind_the_end_is_not(descriptor: int) -> None:
    pages = pages_of(descriptor)
    for _ in range(2):
        assert not pages.are_in_memory(1, SIZE)
        assert not pages.are_in_memory(SIZE + 1, 0)
        assert pages.are_in_memory(SIZE, 0)


def test_no_address_space_is_left_behind(descriptor: int) -> None:
    def used() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0])

    pages = pages_of(descriptor)
    pages.are_in_memory(SIZE, 0)
    before = used()
    for _ in range(1000):
        pages.come()
        pages.are_in_memory(SIZE, 0)
    assert used() - before < 500 * SIZE // PAGE


def test_of_a_file_of_others_the_system_says_that_all_is_there(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.fstat(descriptor).st_uid + 1)
    assert page_cache.pages_of(descriptor) is None


def test_a_file_system_that_cannot_read_without_waiting(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "preadv", failing(errno.EOPNOTSUPP))
    assert page_cache.pages_of(descriptor) is None


def test_a_system_that_says_of_all_that_it_is_there(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache.Calls, "are_in_memory", lambda *_: True)
    page_cache.calls.cache_clear()
    try:
        assert page_cache.pages_of(descriptor) is None
    finally:
        page_cache.calls.cache_clear()


def skip_unless_counted(fd: int) -> None:
    if not page_cache.Calls().are_counted(fd, 1, 0):
        pytest.skip("this system does not count pages (before Linux 6.5)")


class Asked:
    """How often mincore was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        asks = page_cache.Calls.are_in_memory

        def are_in_memory(calls: page_cache.Calls, fd: int, size: int, position: int) -> bool:
            self.times += 1
            return asks(calls, fd, size, position)

        monkeypatch.setattr(page_cache.Calls, "are_in_memory", are_in_memory)


@pytest.mark.parametrize("question", ["are_counted", "are_in_memory"])
def test_a_thread_that_reads_during_a_question_ends_the_row(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """The question put back what the thread had ended, and believed what it had counted meanwhile."""
    pages = pages_of(descriptor)
    skip_unless_counted(descriptor)
    assert pages.are_in_memory(4 * PAGE, 0)
    asked = Asked(monkeypatch)
    asks = getattr(page_cache.Calls, question)

    def asked_while_a_thread_begins(calls: page_cache.Calls, fd: int, size: int, position: int) -> bool:
        pages.come()
        return bool(asks(calls, fd, size, position))

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(page_cache.Calls, question, asked_while_a_thread_begins)
        if question == "are_counted":
            assert pages.are_in_memory(PAGE, 0)
            assert asked.times == 1
        else:
            assert pages.are_in_memory(PAGE, 4 * PAGE)
    before = asked.times
    assert pages.are_in_memory(4 * PAGE, 0)
    assert asked.times == before + 1


def test_what_was_found_is_only_counted(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = pages_of(descriptor)
    skip_unless_counted(descriptor)
    asked = Asked(monkeypatch)
    for position in range(0, SIZE, 4 * PAGE):
        assert pages.are_in_memory(4 * PAGE, position)
    assert asked.times == 16
    assert pages.are_in_memory(SIZE, 0)  # a row of all of them
    assert pages.are_in_memory(SIZE - 2 * PAGE - 7, PAGE + 3)
    assert asked.times == 16
    pages.come()
    assert pages.are_in_memory(1, 0)
    assert asked.times == 17
    assert pages.are_in_memory(1, 9 * PAGE)  # no row with the first
    assert pages.are_in_memory(1, 0)
    assert asked.times == 19


def test_what_was_found_and_dropped_is_not_there(descriptor: int) -> None:
    pages = pages_of(descriptor)
    assert pages.are_in_memory(SIZE, 0)
    forget(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    os.pread(descriptor, SIZE - PAGE, 0)
    assert not pages.are_in_memory(SIZE, 0)
    assert not pages.are_in_memory(1, SIZE - PAGE)
    assert pages.are_in_memory(SIZE - PAGE, 0)


def test_a_system_that_does_not_count_is_asked_of_each_page(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "CACHESTAT", 9999)
    pages, asked = pages_of(descriptor), Asked(monkeypatch)
    assert pages.are_in_memory(SIZE, 0)
    assert pages.are_in_memory(SIZE, 0)
    assert asked.times == 2


def test_what_is_written_behind_what_was_found_is_only_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, 5000)
    fd = file.sendable(5000, 0)
    assert fd is not None
    skip_unless_counted(fd)
    asked = Asked(monkeypatch)
    for position in range(5000, 50_000, 5000):
        file.write_at(b"x" * 5000, position)
        assert file.sendable(9000, position - 4000) is not None
    assert asked.times == 0
    file.write_at(b"x" * 5000, 60_000)
    assert file.sendable(5000, 60_000) is not None
    assert asked.times == 1


def test_what_comes_by_a_read_is_asked_of_each_page_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, SIZE)
    assert file.sendable(SIZE, 0) is not None
    asked = Asked(monkeypatch)
    for come in (lambda: file.warm(1, 0), lambda: file.read_at(1, 0)):
        come()
        assert file.sendable(SIZE, 0) is not None
    assert asked.times == 2


def test_what_comes_by_a_read_that_does_not_wait_is_asked_of_each_page_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was only counted, as if it were there already: to send it then held the event loop up for the disk."""
    file = written(tmp_path, SIZE)
    file.sync()
    fd = file.sendable(SIZE, 0)
    assert fd is not None
    forget(fd)
    assert file.read_nowait(1, 0) is None
    monkeypatch.setattr(page_cache.Calls, "are_counted", lambda *_: True)
    monkeypatch.setattr(page_cache.Calls, "are_in_memory", lambda *_: False)
    assert file.sendable(PAGE, 0) is None


def test_what_was_dropped_is_brought_back(tmp_path: Path) -> None:
    file = written(tmp_path, SIZE)
    file.sync()
    fd = file.sendable(SIZE, 0)
    assert fd is not None
    forget(fd)
    assert file.warm(SIZE, 0)
    assert file.sendable(SIZE, 0) is not None
    assert file.warm(SIZE, SIZE - 1)  # no more than there is


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS])
def test_where_nothing_can_be_sent_to_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    file = written(tmp_path, 1)
    monkeypatch.setattr(os, "sendfile", failing(number))
    assert not file.warm(1, 0)


def test_where_there_is_no_such_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, 1)
    monkeypatch.setattr(os, "devnull", str(tmp_path / "none" / "null"))
    page_cache.nowhere.cache_clear()
    try:
        assert not file.warm(1, 0)
    finally:
        page_cache.nowhere.cache_clear()


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, 1)
    monkeypatch.setattr(os, "sendfile", failing(errno.EIO))
    with pytest.raises(DiskError):
        file.warm(1, 0)


def test_files(tmp_path: Path) -> None:
    file = written(tmp_path, SIZE)
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
