"""A log of many transactions, whatever happens to it: who reads committed data reads exactly that.

The reader does what consumers do: it takes the records that a fetch brings, and leaves out those of transactions that
the answer's list names, until their markers. The model is the list of what was appended.
"""

import heapq
import random
from dataclasses import dataclass
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.records import batch
from logyard.broker.records.decode import ABORT, COMMIT, control_type
from tests.support.logs import NOW, marker, new_log, opened, produced

PIDS = (1, 2, 3, 4)
CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=150)


@dataclass
class Written:
    """One batch: of a transaction if `pid` says so; `kind` is that of a marker."""

    first: int
    last: int
    pid: int | None = None
    kind: int | None = None


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = MemoryDisk()
        self.log: PartitionLog = new_log(self.disk, CONFIG)
        self.model: list[Written] = []
        self.sequences = dict.fromkeys(PIDS, 0)
        # Markers below this were read again from files, which say what is open, and not what was ended just before:
        # such a transaction holds nothing back any more. Its outcome is decided, and readers are told of it.
        self.read_again = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check_stable_offset()
        self.check_reader()
        self.log.set_high_watermark(self.log.log_end_offset)
        self.check_stable_offset()
        self.check_reader()

    def step(self) -> None:
        pid = self.chance.choice(PIDS)
        match self.chance.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5:
                self.append(pid)
            case 6 | 7:
                data = produced([b"plain"] * self.chance.randrange(1, 4))
                info = self.log.append_as_leader(data, 0, now_ms=NOW)
                self.model.append(Written(info.first_offset, info.last_offset))
            case 8 | 9 | 10:
                self.end(pid, self.chance.choice((ABORT, COMMIT)))
            case 11 | 12 | 13:
                ends = [w.last + 1 for w in self.model if w.last >= self.log.high_watermark]
                self.log.set_high_watermark(self.chance.choice([self.log.high_watermark, *ends]))
            case 14:
                self.follow()
            case 15:
                self.restart()
            case 16:
                self.cut()
            case 17 if self.chance.random() < 0.4:
                low, high = self.log.log_start_offset, self.log.high_watermark
                self.log.advance_log_start(self.chance.randrange(low, high + 1))
            case 18:
                self.check_reader()
            case _:
                pass

    def append(self, pid: int) -> None:
        count = self.chance.randrange(1, 4)
        fields: dict[str, Any] = {"producer_id": pid, "producer_epoch": 0, "base_sequence": self.sequences[pid]}
        info = self.log.append_as_leader(produced([b"txn"] * count, transactional=True, **fields), 0, now_ms=NOW)
        self.sequences[pid] += count
        self.model.append(Written(info.first_offset, info.last_offset, pid))

    def end(self, pid: int, kind: int) -> None:
        made = marker(kind, producer_id=pid)
        info = self.log.append_as_leader(made, 0, now_ms=NOW, origin=Origin.COORDINATOR)
        self.model.append(Written(info.first_offset, info.last_offset, pid, kind))

    def follow(self) -> None:
        """Some batches and markers come in one fetch from a leader, as they are."""
        data = bytearray()
        offset = self.log.log_end_offset
        for pid in self.chance.sample(PIDS, 3):
            count = self.chance.randrange(1, 3)
            fields: dict[str, Any] = {"producer_id": pid, "producer_epoch": 0, "base_sequence": self.sequences[pid]}
            made = bytearray(produced([b"far"] * count, transactional=True, **fields))
            batch.stamp(made, 0, offset, 0)
            data += made
            self.model.append(Written(offset, offset + count - 1, pid))
            self.sequences[pid] += count
            offset += count
            if self.chance.random() < 0.7:
                kind = self.chance.choice((ABORT, COMMIT))
                ended = bytearray(marker(kind, producer_id=pid))
                batch.stamp(ended, 0, offset, 0)
                data += ended
                self.model.append(Written(offset, offset, pid, kind))
                offset += 1
        self.log.append_as_follower(memoryview(data), now_ms=NOW)

    def restart(self) -> None:
        high_watermark, start = self.log.high_watermark, self.log.log_start_offset
        if self.chance.random() < 0.5:
            end = self.log.log_end_offset
            self.log.close()
            known = Checkpointed(recovery_point=end, log_start_offset=start, clean=True)
        else:
            self.disk.restart()
            known = Checkpointed(log_start_offset=start)
        self.log = opened(self.disk, CONFIG, known)
        self.log.set_high_watermark(high_watermark)
        self.read_again = self.log.log_end_offset

    def cut(self) -> None:
        """A follower drops what its new leader does not have: nothing below the high watermark."""
        at = self.chance.randrange(self.log.high_watermark, self.log.log_end_offset + 1)
        if self.log.truncate_to(at):
            self.log.want_producers()
            self.read_again = self.log.log_end_offset
        self.model = [w for w in self.model if w.last < self.log.log_end_offset]
        for pid in PIDS:
            entry = self.log.producers.entries.get(pid)
            self.sequences[pid] = entry.last_sequence + 1 if entry is not None else 0

    # What has to hold

    def check_stable_offset(self) -> None:
        log = self.log
        open_from: dict[int, int] = {}
        unstable: list[int] = []
        for written in self.model:
            if written.pid is None:
                continue
            if written.kind is None:
                open_from.setdefault(written.pid, written.first)
            elif written.pid in open_from:
                first = open_from.pop(written.pid)
                if written.last >= max(log.high_watermark, self.read_again):
                    unstable.append(first)
        expected = min([*unstable, *open_from.values(), log.high_watermark])
        assert log.last_stable_offset == max(expected, log.log_start_offset)

    def check_reader(self) -> None:
        outcome = self.outcomes()
        start = self.log.log_start_offset
        stable = self.log.last_stable_offset
        committed = [
            offset
            for written in self.model
            if written.kind is None and (written.pid is None or outcome[written.first] == COMMIT)
            for offset in range(written.first, written.last + 1)
            if start <= offset < stable and written.last < stable
        ]
        assert [offset for offset in self.read() if offset >= start] == committed

    def outcomes(self) -> dict[int, int | None]:
        """By first offset of each batch, how its transaction ended; None: it has not."""
        found: dict[int, int | None] = {}
        open_ones: dict[int, list[int]] = {pid: [] for pid in PIDS}
        for written in self.model:
            if written.pid is None:
                continue
            if written.kind is None:
                open_ones[written.pid].append(written.first)
                found[written.first] = None
            else:
                found.update(dict.fromkeys(open_ones[written.pid], written.kind))
                open_ones[written.pid] = []
        return found

    def read(self) -> list[int]:
        """The offsets of committed records up to the last stable offset, as a consumer gets them."""
        log, offset = self.log, self.log.log_start_offset
        found: list[int] = []
        stable = log.last_stable_offset
        while offset < stable:
            piece = log.read(offset, self.chance.choice((1, 200, 600)), limit_offset=stable, min_one=True)
            data = piece.load_nowait()
            records = piece.load() if data is None else data
            aborted = piece.aborted()
            assert aborted is not None, "nothing was cut"
            assert set(aborted) <= set(log.aborted_transactions(offset, stable))
            listed = [(each.first_offset, each.producer_id) for each in aborted]
            heapq.heapify(listed)
            skipped: set[int] = set()
            assert records, "whole batches lie below the stable offset"
            for position, header in batch.iter_headers(records):
                offset = header.last_offset + 1
                while listed and listed[0][0] <= header.last_offset:
                    skipped.add(heapq.heappop(listed)[1])
                if header.is_control:
                    (record,) = batch.records(memoryview(records), position)
                    if control_type(record) == ABORT:
                        skipped.discard(header.producer_id)
                elif not header.is_transactional or header.producer_id not in skipped:
                    found += range(header.base_offset, header.last_offset + 1)
        return found


@pytest.mark.parametrize("first_seed", range(0, 60, 10))
def test_committed_data_and_nothing_else_is_read(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        History(seed).run(120)
