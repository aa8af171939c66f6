"""Random histories of one log compared with a list: after any steps, and any crash, the log is what was written.

The model is the list of batches as bytes. Killing the process loses no append that had returned; a power loss may lose
what was not flushed, from some batch on, and never anything before it.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.memory import MachineStopped, MemoryDisk
from logyard.broker.log.listener import standalone_host
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery import recovery
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.log.retention import delete_old_segments
from logyard.broker.records import batch
from tests.support.lengths import examples
from tests.support.log_model import TRANSACTIONAL, Model
from tests.support.logs import (
    DIRECTORY,
    NOW,
    ROOT,
    TP,
    content,
    create_log,
    fetched,
    marker,
    offsets,
    produced,
    replace_segments,
)

CONFIG = TopicConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    segment_index_bytes=400,
    retention_ms=-1,
    retention_bytes=2500,
)

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("idempotent"), st.integers(1, 3)),
    st.tuples(st.just("transact"), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(0, 1)),
    st.tuples(st.just("abort"), st.integers(1, 2)),
    st.tuples(st.just("follow"), st.integers(1, 5)),
    st.tuples(st.just("epoch"), st.just(0)),
    st.tuples(st.just("roll"), st.just(0)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 30)),
    st.tuples(st.just("start"), st.integers(0, 100)),
    st.tuples(st.just("retain"), st.just(0)),
    st.tuples(st.just("compact"), st.integers(0, 3)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)


def histories(**bounds: Any) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Lists of steps; an "abort" stands for a transaction and its end."""

    def expand(steps: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return [
            each
            for step, number in steps
            for each in ([("transact", number), ("end", batch.ABORT)] if step == "abort" else [(step, number)])
        ]

    return st.lists(STEPS, **bounds).map(expand)


class History:
    """A log and its model, which take the same steps."""

    def __init__(self) -> None:
        self.disk = MemoryDisk(choose=random.Random(7).randrange)
        self.disk.make_directory(ROOT)
        self.disk.sync_directory("/")
        self.model = Model()
        self.known = Checkpointed()
        self.host = standalone_host(self.disk)._replace(listener=self)
        self.intended: list[bytes] | None = None  # where a step that may be stopped halfway leads
        self.log = create_log(self.disk, TP, DIRECTORY, CONFIG, host=self.host)
        self.disk.sync_directory(ROOT)

    # LogListener

    def rolled(self, log: object) -> None: ...

    def damaged(self, log: object, what: str) -> None:
        raise AssertionError(f"nothing was damaged: {what}")

    def retired(self, log: object, paths: Sequence[str]) -> None:
        for path in paths[::2]:  # some are removed at once, some stay for the next start
            self.disk.remove(path)

    def cutting(self, log: object, offset: int) -> None:
        start = self.known.log_start_offset
        if start is not None:
            start = min(start, offset, self.log.log_start_offset)
        self.known = Checkpointed(min(self.known.recovery_point, offset), start)

    def cut(self, log: object, offset: int) -> None: ...

    # Steps

    def append(self, count: int) -> None:
        data = produced([b"x" * 20] * count, timestamp=NOW + len(self.model.batches) % 7)
        self.log.append_as_leader(data, self.model.epoch, now_ms=NOW)
        self.wrote(bytes(data), count)

    def idempotent(self, count: int) -> None:
        self.log.want_producers()  # a truncation left them to be read again
        known = self.log.producers.entries.get(9)
        first = 0 if known is None else known.last_sequence + 1
        data = produced([b"y" * 10] * count, producer_id=9, producer_epoch=0, base_sequence=first)
        self.log.append_as_leader(data, self.model.epoch, now_ms=NOW)
        self.wrote(bytes(data), count)

    def transact(self, count: int) -> None:
        self.log.want_producers()
        known = self.log.producers.entries.get(TRANSACTIONAL)
        first = 0 if known is None else known.last_sequence + 1
        data = produced(
            [b"t" * 10] * count,
            producer_id=TRANSACTIONAL,
            producer_epoch=0,
            base_sequence=first,
            transactional=True,
        )
        self.log.append_as_leader(data, self.model.epoch, now_ms=NOW)
        self.wrote(bytes(data), count)

    def end(self, kind: int) -> None:
        """Write a marker: an abort or a commit."""
        data = marker(kind % 2, producer_id=TRANSACTIONAL)
        # It may be in the log and the step be stopped behind that, in the transaction index.
        batch.stamp(data, 0, self.model.end, self.model.epoch)
        self.intended = [*self.model.batches, bytes(data)]
        data[:8] = bytes(8)
        self.log.append_as_leader(data, self.model.epoch, now_ms=NOW, origin=Origin.COORDINATOR)
        self.wrote(bytes(data), 1)

    def follow(self, count: int) -> None:
        base = self.model.end
        data = [fetched(base + at * 2, [b"z" * 15] * 2, epoch=self.model.epoch) for at in range(count)]
        self.intended = [*self.model.batches, *data]
        self.log.append_as_follower(memoryview(b"".join(data)))
        for piece in data:
            self.wrote(piece, 2)

    def wrote(self, data: bytes, count: int) -> None:
        self.model.batches.append(data)
        self.model.end += count
        self.log.set_high_watermark(self.log.log_end_offset)

    def new_epoch(self) -> None:
        self.model.epoch += 1
        self.log.epochs.assign(self.model.epoch, self.log.log_end_offset)

    def checkpoint(self) -> None:
        self.known = Checkpointed(self.log.recovery_point, self.log.log_start_offset)

    def truncate(self, back: int) -> None:
        target = max(self.model.start, self.model.end - back)
        model = self.model
        while model.batches and offsets(model.batches[-1])[0][1] >= target:
            model.end = min(target, offsets(model.batches[-1])[0][0])
            model.batches.pop()
        self.log.truncate_to(target)
        if model.end < model.start:
            model.batches.clear()
            model.end = model.start
        model.furthest_start = min(model.furthest_start, model.end)

    def advance(self, percent: int) -> None:
        offset = self.model.start + (self.model.end - self.model.start) * percent // 100
        self.model.start = offset
        self.model.furthest_start = max(self.model.furthest_start, offset)
        self.log.advance_log_start(offset)

    def retain(self) -> None:
        delete_old_segments(self.log, NOW)
        self.model.start = self.log.log_start_offset
        self.model.furthest_start = max(self.model.furthest_start, self.model.start)

    def compact(self, first: int) -> None:
        """Replace up to three closed segments by one with the same batches but fewer records."""
        closed = self.log.segments.closed[first : first + 3]
        if not closed:
            return
        rewritten = []
        bases = [segment.base_offset for segment in closed]
        last_offset = closed[-1].end_offset() - 1
        for data in self.model.batches:
            base, last = offsets(data)[0]
            if bases[0] <= base and last <= last_offset:
                data = thinned(data)
            rewritten.append(data)
        part = f"{ROOT}/part"
        wanted = [d for d in rewritten if bases[0] <= offsets(d)[0][0] and offsets(d)[0][1] <= last_offset]
        if bases[0] < self.first_kept_base(bases[0]):
            return  # below the model's oldest batch: nothing to say about it
        file = self.disk.open(part, create=True, write=True)
        file.truncate(0)
        file.write_at(b"".join(wanted), 0)
        self.intended = rewritten
        replace_segments(self.log, [part], [bases])
        self.model.batches = rewritten

    def first_kept_base(self, base: int) -> int:
        return offsets(self.model.batches[0])[0][0] if self.model.batches else base + 1

    def take(self, step: str, number: int) -> None:
        plain = {"epoch": self.new_epoch, "roll": self.roll, "flush": self.log.flush, "checkpoint": self.checkpoint}
        plain |= {"retain": self.retain, "kill": self.reopen, "restart": self.restart}
        counted: dict[str, Callable[[int], None]] = {
            "append": self.append,
            "idempotent": self.idempotent,
            "follow": self.follow,
        }
        counted |= {"transact": self.transact, "end": self.end}
        counted |= {"truncate": self.truncate, "start": self.advance, "compact": self.compact}
        if step in plain:
            plain[step]()
        else:
            counted[step](number)

    def roll(self) -> None:
        if self.log.segments.active.size:
            self.log.roll(self.log.log_end_offset, NOW)

    def restart(self) -> None:
        self.log.close()
        self.known = Checkpointed(self.log.recovery_point, self.log.log_start_offset, clean=True)
        self.reopen()

    def reopen(self) -> None:
        state = recovery.load(self.disk, DIRECTORY, CONFIG, self.known, now_ms=NOW)
        self.known = Checkpointed(self.known.recovery_point, self.known.log_start_offset)
        self.log = PartitionLog(self.disk, TP, DIRECTORY, CONFIG, state, now_ms=NOW, host=self.host)
        # Only the checkpoint knows of a start inside a segment.
        self.model.start = self.log.log_start_offset
        self.log.set_high_watermark(self.log.log_end_offset)

    def check(self) -> None:
        log, model = self.log, self.model
        assert log.log_end_offset == model.end
        assert content(log) == model.visible(log.log_start_offset)
        assert log.size == sum(log.disk.status(s.path(".log")).size for s in log.segments)
        known = [e for e in model.epochs() if e[1] >= model.furthest_start]
        kept = [tuple(e) for e in log.epochs.entries if e.start_offset < log.log_end_offset]
        assert kept[-len(known) :] == known or not known
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        self.check_transactions()

    def check_transactions(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        wanted = [a for a in self.model.aborted() if a[1] >= start]
        found = [(a.first_offset, a.last_offset) for a in self.log.aborted_transactions(start, end)]
        assert [a for a in found if a[0] >= start] == [a for a in wanted if a[0] >= start]


def thinned(data: bytes) -> bytes:
    """The batch without its first record (without any, if it has one): offsets, producer and sequence stay.

    Markers stay as they are.
    """
    header = batch.parse_header(data)
    if header.is_control:
        return data
    return bytes(
        batch.build(
            batch.records(data)[1:],
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(max_size=40))
def test_a_log_is_the_list_of_what_was_written(steps: list[tuple[str, int]]) -> None:
    history = History()
    for step, number in steps:
        history.take(step, number)
        history.check()
        history.log.want_producers()
        producer = history.log.producers.entries.get(9)
        written = [h for d in history.model.batches if (h := batch.parse_header(d)).producer_id == 9]
        if written and producer is not None:
            assert producer.last_sequence == written[-1].last_sequence


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(min_size=5, max_size=30), st.integers(1, 400))
def test_stopped_anywhere_it_is_what_was_written_before_or_after_the_step(
    steps: list[tuple[str, int]], stop_after: int
) -> None:
    history = History()
    history.disk.stop_at = history.disk.operations + stop_after
    before: list[bytes] = []
    step = ""
    try:
        for step, number in steps:
            before, history.intended = list(history.model.batches), None
            history.take(step, number)
    except MachineStopped:
        history.disk.restart()
        history.reopen()
        after = history.model.batches if history.intended is None else history.intended
        found = split(content(history.log))
        assert is_between(found, history.log.log_start_offset, before, after), step
        history.log.append_as_leader(produced([b"on"]), history.model.epoch + 1, now_ms=NOW)


def split(data: bytes) -> list[bytes]:
    return [data[position : position + header.length] for position, header in batch.iter_headers(data)]


def is_between(found: list[bytes], start: int, before: list[bytes], after: list[bytes]) -> bool:
    """Whether `found` is, from `start` on, what there was before or after a step, or a stage of becoming it."""
    old, new = ([data for data in whole if offsets(data)[0][1] >= start] for whole in (before, after))
    short, long = sorted((old, new), key=len)
    grown = long[: len(short)] == short and long[: len(found)] == found and len(found) >= len(short)
    return found in (old, new) or grown


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(min_size=5, max_size=30), st.randoms(use_true_random=False))
def test_after_a_power_loss_it_is_what_was_written_up_to_some_batch(
    steps: list[tuple[str, int]], chance: random.Random
) -> None:
    history = History()
    for step, number in steps:
        history.take(step, number)
        if step in ("truncate", "retain", "kill", "compact"):
            history.log.flush()  # as the store does soon after
    flushed = history.known.recovery_point
    history.disk.restart(chance.randrange)
    history.reopen()
    found = split(content(history.log))
    visible = [data for data in history.model.batches if offsets(data)[0][1] >= history.log.log_start_offset]
    assert found == visible[: len(found)]
    assert history.log.log_end_offset >= min(flushed, history.model.end)
    history.log.append_as_leader(produced([b"on"]), history.model.epoch + 1, now_ms=NOW)
