"""Replacing segments: refusals, results, and a crash at every step."""

import itertools
import random
from dataclasses import replace

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MachineStopped, MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.log.segment import swap
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.swap import BadPart
from logyard.broker.records import batch
from tests.support.logs import (
    DIRECTORY,
    NOW,
    ROOT,
    content,
    fetched,
    marker,
    names,
    new_log,
    offsets,
    opened,
    produced,
    replace_segments,
)

CONFIG = TopicConfig(segment_bytes=200, index_interval_bytes=50, cleanup_policy=frozenset({"compact"}))
Groups = list[list[int]]


def filled(disk: MemoryDisk) -> PartitionLog:
    log = new_log(disk, CONFIG)
    disk.sync_directory(ROOT)
    for number in range(17):
        log.append_as_leader(produced([b"v%03d" % number] * 2), 0, now_ms=NOW)
    log.set_high_watermark(34)
    log.flush()
    return log


def half(data: bytes) -> bytes:
    """Every batch without its first record; offsets stay."""
    made = b""
    for position, header in batch.iter_headers(data):
        kept = batch.records(data, position)[1:]
        made += batch.build(kept, base_offset=header.base_offset, last_offset=header.last_offset, leader_epoch=0)
    return made


def write_part(disk: MemoryDisk, log: PartitionLog, bases: list[int], data: bytes | None = None) -> str:
    """Write a part that replaces these segments, in a directory of its own."""
    disk.make_directory(f"{ROOT}/parts")
    path = f"{ROOT}/parts/{bases[0]:020d}.part"
    if data is None:
        data = half(b"".join(s.read(s.size, 0) for s in log.segments if s.base_offset in bases))
    file = disk.open(path, create=True, write=True)
    file.truncate(0)
    file.write_at(data, 0)
    return path


def bases_of(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


class TestSwap:
    def test_the_new_segments_are_read_where_the_old_ones_were(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        bases = bases_of(log)
        before = content(log)
        groups = [bases[0:3], bases[4:6]]
        replace_segments(log, [write_part(disk, log, group) for group in groups], groups)
        assert bases_of(log) == [bases[0], bases[3], bases[4], *bases[6:]]
        after = content(log)
        assert offsets(after) == offsets(before)
        assert len(after) < len(before)
        assert log.size == sum(segment.size for segment in log.segments)
        assert not [name for name in names(disk) if name.endswith((".swap", ".cleaned", ".deleted"))]
        assert content(log, max_bytes=100) == after
        for known in (Checkpointed(), Checkpointed(recovery_point=34)):
            assert content(opened(disk, CONFIG, known)) == after

    def test_a_read_that_waits_during_a_swap_reads_nothing_old_by_a_new_name(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        bases = bases_of(log)
        log.segments[0].release()
        piece = log.read(0, 100, limit_offset=34, min_one=True)
        assert piece.is_cold
        replace_segments(log, [write_part(disk, log, bases[:2])], [bases[:2]])
        assert piece.load() == b""

    def test_aborted_transactions_stay_while_their_marker_does(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, replace(CONFIG, segment_bytes=5000))
        for producer_id in (1, 2):
            data = produced([b"t"], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
            log.append_as_leader(data, 0, now_ms=NOW)
            log.append_as_leader(marker(batch.ABORT, producer_id=producer_id), 0, now_ms=NOW, origin=Origin.COORDINATOR)
        log.roll(4, NOW)
        kept = b""
        first = log.segments[0].read(log.segments[0].size, 0)
        for position, header in batch.iter_headers(first):
            if header.base_offset == 1:  # the first marker is emptied
                kept += batch.build(
                    [], base_offset=1, last_offset=1, control=True, transactional=True, producer_id=1, producer_epoch=0
                )
            else:
                kept += first[position : position + header.length]
        replace_segments(log, [write_part(disk, log, [0], kept)], [[0]])
        assert log.segments[0].aborted == [AbortedTxn(2, 2, 3, 4)]
        assert log.aborted_transactions(0, 4) == [AbortedTxn(2, 2, 3, 4)]


class TestRefusals:
    def refused(self, disk: MemoryDisk, log: PartitionLog, parts: list[str], groups: Groups, why: str) -> None:
        before, there = content(log), names(disk)
        with pytest.raises(BadPart, match=why):
            replace_segments(log, parts, groups)
        assert content(log) == before
        assert names(disk) == there

    def test_invalid_parts_are_refused(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        group = bases_of(log)[:2]
        good = half(b"".join(s.read(s.size, 0) for s in list(log.segments)[:2]))
        spoilt = bytearray(good)
        spoilt[70] ^= 1
        *_, (last_at, _) = batch.iter_headers(good)
        for data, why in (
            (bytes(spoilt), "CRC"),
            (good[:-1], "part 0"),
            (good[:last_at], "last offset"),
            (good + good, "follows"),
            (b"", "last offset"),
            (b"nonsense" * 20, "part 0"),
        ):
            self.refused(disk, log, [write_part(disk, log, group, data)], [group], why)

    def test_offsets_too_far_from_one_another_for_an_index(self) -> None:
        disk = MemoryDisk()
        log = new_log(disk, replace(CONFIG, index_interval_bytes=1))
        for first in (0, 1 << 31, (1 << 31) + 2):
            log.append_as_follower(memoryview(fetched(first, [b"v" * 80, b"w" * 80])))
        group = bases_of(log)[:2]
        assert group == [0, 1 << 31]
        self.refused(disk, log, [write_part(disk, log, group)], [group], "too far from 0")

    def test_groups_that_are_not_adjacent_closed_segments(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        bases = bases_of(log)
        for groups in ([[bases[0], bases[2]]], [[5]], [[bases[-1]]], [bases[2:3], bases[0:1]], [bases[:2], bases[1:3]]):
            parts = [write_part(disk, log, group) for group in groups]
            self.refused(disk, log, parts, groups, "adjacent|ascend")

    def test_what_was_truncated_meanwhile_is_not_swapped(self) -> None:
        disk = MemoryDisk()
        log = filled(disk)
        bases = bases_of(log)
        prepared = log.prepare_replacement([write_part(disk, log, bases[:2])], [bases[:2]])
        log.truncate_to(1)
        with pytest.raises(BadPart, match="cut"):
            log.swap_in(prepared)
        assert not [name for name in names(disk) if name.endswith((".swap", ".cleaned"))]


# Groups as slices of the log's segments: one, two with nothing between, two with segments between, three.
SHAPES = [[(0, 2)], [(0, 2), (2, 4)], [(0, 1), (3, 5)], [(0, 2), (3, 4), (5, 7)]]


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_stopped_at_any_operation_the_old_or_the_new_set_is_there(shape: list[tuple[int, int]], power: bool) -> None:
    stopped_at = 0
    outcomes = set()
    while True:
        stopped_at += 1
        chance = random.Random(stopped_at)
        disk = MemoryDisk(choose=chance.randrange)
        log = filled(disk)
        bases = bases_of(log)
        old = content(log)
        groups = [bases[first:last] for first, last in shape]
        parts = [write_part(disk, log, group) for group in groups]
        disk.stop_at = disk.operations + stopped_at
        try:
            replace_segments(log, parts, groups)
        except MachineStopped:
            pass
        else:
            break
        disk.restart(chance.randrange if power else None)
        again = opened_after_stops(disk, stopped_at)
        found = content(again)
        new = expected_new(old, groups, bases)
        assert found in (old, new), stopped_at
        outcomes.add(found == new)
        assert not [name for name in names(disk) if name.endswith((".swap", ".cleaned"))]
        again.append_as_leader(produced([b"on"]), 1, now_ms=NOW)
    assert stopped_at > 20
    assert outcomes == {True, False}


def opened_after_stops(disk: MemoryDisk, seed: int) -> PartitionLog:
    """Open the log, with another crash on the way."""
    disk.stop_at = disk.operations + 1 + seed % 12
    try:
        log = opened(disk, CONFIG, Checkpointed(recovery_point=34))
    except MachineStopped:
        disk.restart()
        log = opened(disk, CONFIG, Checkpointed(recovery_point=34))
    disk.stop_at = None
    return log


def expected_new(old: bytes, groups: Groups, bases: list[int]) -> bytes:
    following = dict(itertools.pairwise(bases))
    ranges = [(group[0], following[group[-1]]) for group in groups]
    made = b""
    for position, header in batch.iter_headers(old):
        data = old[position : position + header.length]
        made += half(data) if any(low <= header.base_offset < high for low, high in ranges) else data
    return made


def test_a_higher_cleaned_beside_a_swap_does_not_undo_it() -> None:
    """Kafka writes such pairs when it splits a segment: only swaps at or above the lowest `.cleaned` are undecided."""
    disk = MemoryDisk()
    log = filled(disk)
    bases = bases_of(log)
    part = half(log.segments[0].read(log.segments[0].size, 0))
    disk.open(log.segments[0].path(".log", ".swap"), create=True, write=True).write_at(part, 0)
    disk.open(log.segments[3].path(".log", ".cleaned"), create=True)
    again = opened(disk, CONFIG, Checkpointed(recovery_point=34))
    assert again.segments[0].size == len(part)
    assert bases_of(again) == bases
    assert swap.segment_files(disk, DIRECTORY)
