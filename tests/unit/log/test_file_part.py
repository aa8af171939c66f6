"""Records that are answered as where they are in their file, and sent from there."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import StorageError
from logyard.broker.log.disk import page_cache
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.file_part import FILE_BYTES_MIN, FilePart
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.recovery import recovery
from logyard.broker.log.recovery.recovery import Checkpointed
from tests.support.dropped import drop, skip_unless_told
from tests.support.logs import TP, create_log, new_log, offsets, produced, replace_segments

BATCH = 40_000


def stored(directory: Path, count: int = 10) -> PartitionLog:
    """A log on the machine's disk with so many batches."""
    log = create_log(OsDisk(), TP, str(directory / "t-0"), TopicConfig())
    for number in range(count):
        log.append_as_leader(produced([bytes([number]) * BATCH]), 0, now_ms=1)
    log.set_high_watermark(log.log_end_offset)
    return log


def part_of(log: PartitionLog, offset: int = 0, max_bytes: int = 1 << 20) -> FilePart | None:
    return log.read(offset, max_bytes, limit_offset=log.log_end_offset, min_one=True).in_file()


def content(log: PartitionLog) -> bytes:
    data = log.read(0, 1 << 20, limit_offset=log.log_end_offset, min_one=True).load_nowait()
    assert data is not None
    return bytes(data)


@pytest.fixture(autouse=True)
def _told(tmp_path: Path) -> None:
    skip_unless_told(tmp_path)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_it_has_the_bytes_that_are_read(tmp_path: Path) -> None:
    log = stored(tmp_path)
    whole = content(log)
    part = part_of(log)
    assert part is not None
    assert (len(part), part.read()) == (len(whole), whole)
    later = part_of(log, offset=3, max_bytes=8 * BATCH)
    assert later is not None
    assert later.read() in whole


def test_few_bytes_are_read_at_once(tmp_path: Path) -> None:
    log = stored(tmp_path)
    assert part_of(log, max_bytes=FILE_BYTES_MIN - 1) is None


def test_it_is_only_of_what_is_in_memory(tmp_path: Path) -> None:
    log = stored(tmp_path)
    found = log.read(0, 1 << 20, limit_offset=log.log_end_offset, min_one=True)
    drop(next(tmp_path.rglob("*.log")))
    assert found.in_file() is None


def test_a_file_of_no_system_is_read() -> None:
    log = new_log()
    for _ in range(10):
        log.append_as_leader(produced([b"v" * BATCH]), 0, now_ms=1)
    log.set_high_watermark(log.log_end_offset)
    assert part_of(log) is None


def test_it_sends_as_much_as_the_socket_takes(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    log, (ours, theirs) = stored(tmp_path, 100), pair
    found = log.read(0, 10 << 20, limit_offset=log.log_end_offset, min_one=True)
    part = found.in_file()
    whole = found.load_nowait()
    assert part is not None
    assert whole is not None
    sent = part.send(ours.fileno())
    while taken := part.send(ours.fileno(), sent):
        sent += taken
    assert 0 < sent < len(part), "a socket's buffer is smaller"
    assert theirs.recv(sent, socket.MSG_WAITALL) == whole[:sent]
    more = part.send(ours.fileno(), sent)
    assert more > 0
    assert theirs.recv(more, socket.MSG_WAITALL) == whole[sent : sent + more]


def test_it_asks_again_and_brings_back_what_was_dropped(tmp_path: Path) -> None:
    part = part_of(stored(tmp_path))
    assert part is not None
    assert part.is_in_memory(777)
    drop(next(tmp_path.rglob("*.log")))
    assert not part.is_in_memory(777)
    part.warm(777)
    assert part.is_in_memory(777)


def test_it_outlives_its_file(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    log, (ours, theirs) = stored(tmp_path, 8), pair
    whole, part = content(log), part_of(log)
    assert part is not None
    for path in tmp_path.rglob("*.log"):
        path.unlink()
    del log
    sent = part.send(ours.fileno())
    assert sent > 0
    assert theirs.recv(sent, socket.MSG_WAITALL) + part.read()[sent:] == whole


def test_a_cut_log_is_told(tmp_path: Path) -> None:
    log = stored(tmp_path)
    part = part_of(log)
    assert part is not None
    assert not part.is_cut
    log.append_as_leader(produced([b"more"]), 0, now_ms=1)
    assert not part.is_cut
    log.truncate_to(9)
    assert part.is_cut
    assert part_of(log) is not None


def test_what_a_compaction_replaces_is_sent(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    """Each compaction of a partition ended the connections of its slow readers."""
    log, (ours, theirs) = stored(tmp_path), pair
    log.roll(log.log_end_offset, 1)
    whole, part = content(log), part_of(log)
    assert part is not None
    compacted = tmp_path / "part"
    compacted.write_bytes(whole[len(whole) // 10 * 9 :])
    replace_segments(log, [str(compacted)], [[0]])
    assert log.read(0, 1 << 20, limit_offset=log.log_end_offset, min_one=True).load() != whole
    assert not part.is_cut
    sent = part.send(ours.fileno())
    assert sent > 0
    assert theirs.recv(sent, socket.MSG_WAITALL) + part.read()[sent:] == whole
    log.truncate_to(1)
    assert part.is_cut
    with pytest.raises(StorageError, match="was cut"):
        part.send(ours.fileno(), sent)


def test_a_slice_of_a_cut_log_has_no_part(tmp_path: Path) -> None:
    log = stored(tmp_path)
    found = log.read(0, 1 << 20, limit_offset=log.log_end_offset, min_one=True)
    log.truncate_to(9)
    assert found.in_file() is None


def test_a_file_that_became_shorter(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    log = stored(tmp_path)
    part = part_of(log)
    assert part is not None
    os.truncate(next(tmp_path.rglob("*.log")), len(part) - 1)
    with pytest.raises(StorageError, match="ends in the middle"):
        part.read()
    pair[0].setblocking(True)
    threading.Thread(target=lambda: pair[1].recv(1 << 20, socket.MSG_WAITALL), daemon=True).start()
    sent = 0
    while sent < len(part) - 1:
        sent += part.send(pair[0].fileno(), sent)
    with pytest.raises(StorageError, match="ends in the middle"):
        part.send(pair[0].fileno(), sent)


SETTINGS = TopicConfig(segment_bytes=600_000)


def reopened(directory: Path) -> PartitionLog:
    """A log of three segments as after a stop, of which nothing is in memory: neither indexes nor records."""
    log = create_log(OsDisk(), TP, str(directory / "t-0"), SETTINGS)
    for number in range(40):
        log.append_as_leader(produced([bytes([number]) * BATCH]), 0, now_ms=1)
    log.close()
    known = Checkpointed(recovery_point=40, clean=True, same_boot=True)
    state = recovery.load(OsDisk(), log.directory, SETTINGS, known, now_ms=1, note=print)
    for path in directory.rglob("*.log"):
        drop(path)
    return PartitionLog(OsDisk(), TP, log.directory, SETTINGS, state, now_ms=1)


@pytest.mark.parametrize("offset", [0, 3, 14, 20, 30])
def test_a_thread_finds_it_and_brings_it_into_memory(tmp_path: Path, offset: int) -> None:
    log = reopened(tmp_path)
    found, same = (log.read(offset, 300_000, limit_offset=40, min_one=True) for _ in range(2))
    found.warm()
    part = found.in_file()
    assert part is not None
    assert part.read() == same.load()
    assert offsets(part.read())[0][0] == offset


def test_a_log_that_is_cut_while_a_thread_finds_it(tmp_path: Path) -> None:
    log = reopened(tmp_path)
    found = log.read(0, 300_000, limit_offset=40, min_one=True)
    log.truncate_to(2)
    found.warm()
    assert found.in_file() is None
    assert found.load_nowait() == b""


def test_a_segment_that_is_gone_before_a_thread_finds_it(tmp_path: Path) -> None:
    log = reopened(tmp_path)
    found = log.read(14, 300_000, limit_offset=40, min_one=True)
    for path in tmp_path.rglob("*.index"):
        path.unlink()
    for path in tmp_path.rglob("*.log"):
        path.unlink()
    found.warm()
    data = found.load_nowait()
    assert data == b"" or offsets(data or b"")[0][0] == 14


def test_where_nothing_is_known_of_what_is_in_memory_a_thread_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "pages_of", lambda fd: None)
    log = reopened(tmp_path)
    found, same = (log.read(0, 300_000, limit_offset=40, min_one=True) for _ in range(2))
    found.warm()
    assert found.in_file() is None
    assert found.load_nowait() == same.load()
