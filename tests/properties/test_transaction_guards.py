"""Transactional producers, their coordinator, markers and retries in any order, against one log.

The model is the coordinator: it knows which transactions have the partition. Whatever the order in which batches,
verifications, their answers and markers come: no batch is taken that the coordinator does not know to be in an open
transaction, nothing holds the last stable offset back behind the last marker, and no batch is taken before an earlier
one of its producer that was refused.

With `transaction.version` 2 more holds: no batch is taken in another transaction than the one it was sent in, whatever
arrives late, and no repeated marker ends a later transaction (KAFKA-17754).
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.guards import Guard
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.records.decode import ABORT, COMMIT
from tests.support.logs import NOW, marker, new_log, produced

PIDS = (1, 2, 3)
EXPECTED = {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


@dataclass
class Batch:
    """A Produce on its way: asked is the guard that was verified, `number` the transaction it was sent in."""

    pid: int
    epoch: int
    sequence: int
    number: int
    guard: Guard | None = None
    is_answered: bool = False
    is_in: bool = False


@dataclass
class Producer:
    """What the coordinator knows of one: `number` counts its transactions, `has_partition` is of the present one."""

    pid: int
    epoch: int = 0
    number: int = 0
    sequence: int = 0
    has_partition: bool = False
    is_ending: int | None = None
    fences: bool = False
    travelling: list[Batch] = field(default_factory=list)


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log: PartitionLog = new_log()
        self.log.host.verification.is_on = True
        self.producers = {pid: Producer(pid) for pid in PIDS}
        self.taken = 0
        self.refused: set[ErrorCode] = set()
        self.asked: dict[int, list[Batch]] = {}  # by producer, what was to be verified since it last wrote
        self.first: dict[int, int] = {}  # by producer, where its open transaction begins

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self.producers[self.chance.choice(PIDS)])
            self.check()
        for producer in self.producers.values():
            if producer.is_ending is None:
                self.time_out(producer)
            self.write_marker(producer)
        self.check()
        assert self.log.last_stable_offset == self.log.log_end_offset, "nothing holds it back behind the last marker"

    def time_out(self, producer: Producer) -> None:
        producer.is_ending = ABORT

    def step(self, producer: Producer) -> None:
        match self.chance.randrange(16):
            case 0 | 1 if producer.is_ending is None:
                producer.has_partition = True  # AddPartitionsToTxn
            case 2 | 3 | 4 if len(producer.travelling) < 5:
                self.send(producer)
            case 5 | 6 if producer.travelling:
                self.begin(self.one(producer))
            case 7 | 8 if producer.travelling:
                self.answer(self.one(producer))
            case 9 | 10 | 11 | 12 if producer.travelling:
                self.append(self.one(producer))
            case 13 if producer.has_partition and producer.is_ending is None:
                producer.is_ending = self.chance.choice((COMMIT, ABORT))
                # A client that has left batches behind goes on in a new epoch, mostly.
                producer.fences = self.chance.random() < (0.8 if producer.travelling else 0.3)
            case 14 | 15 if producer.is_ending is not None:
                self.write_marker(producer)
            case _:
                pass

    def one(self, producer: Producer) -> Batch:
        """Mostly what is next."""
        return producer.travelling[0] if self.chance.random() < 0.7 else self.chance.choice(producer.travelling)

    def send(self, producer: Producer) -> None:
        producer.travelling.append(Batch(producer.pid, producer.epoch, producer.sequence, producer.number))
        producer.sequence += 1

    def begin(self, batch: Batch) -> None:
        if not self.log.producers.is_in_transaction(batch.pid, batch.epoch):
            self.asked.setdefault(batch.pid, []).append(batch)
            batch.guard = self.log.producers.guards.begin(batch.pid, batch.epoch, batch.sequence, NOW)

    def answer(self, batch: Batch) -> None:
        """The coordinator says what it knows at this moment; the answer is heard at once, its append later."""
        producer = self.producers[batch.pid]
        knows = producer.has_partition and producer.is_ending is None and producer.epoch == batch.epoch
        if batch.guard is not None and knows:
            batch.is_answered = True
            batch.guard.is_verified = True

    def append(self, batch: Batch) -> None:
        if batch.guard is not None and not batch.is_answered:
            return  # it waits for the answer
        producer = self.producers[batch.pid]
        fields: dict[str, Any] = {
            "producer_id": batch.pid,
            "producer_epoch": batch.epoch,
            "base_sequence": batch.sequence,
        }
        data = produced([b"x"], transactional=True, **fields)
        try:
            info = self.log.append_as_leader(data, 0, now_ms=NOW)
        except ApiError as refused:
            self.refused.add(refused.code)
            batch.guard, batch.is_answered = None, False
            return
        producer.travelling.remove(batch)
        if info.duplicate:
            return
        self.taken += 1
        # Of an earlier transaction in the same epoch it may be (KAFKA-17754): then the present one has the partition.
        assert producer.has_partition, "the coordinator knows of this partition, and its marker is still to come"
        assert batch.epoch == producer.epoch or producer.is_ending is not None
        earlier = [b for b in self.asked.pop(batch.pid, ()) if b.epoch == batch.epoch and b.sequence < batch.sequence]
        assert not earlier, "those were asked for, and refused"
        self.first.setdefault(batch.pid, info.first_offset)

    def write_marker(self, producer: Producer) -> None:
        kind = producer.is_ending
        assert kind is not None
        epoch = producer.epoch + producer.fences
        data = marker(kind, producer_id=producer.pid, producer_epoch=epoch)
        self.log.append_as_leader(data, 0, now_ms=NOW, origin=Origin.COORDINATOR)
        self.first.pop(producer.pid, None)
        self.asked.pop(producer.pid, None)
        if producer.fences:
            producer.epoch, producer.sequence = epoch, 0
        producer.has_partition, producer.is_ending, producer.fences = False, None, False
        producer.number += 1
        if self.chance.random() < 0.5:
            producer.travelling.clear()

    def check(self) -> None:
        log = self.log
        log.set_high_watermark(log.log_end_offset)
        assert self.refused <= EXPECTED
        assert log.producers.open_transactions == self.first
        assert log.last_stable_offset == min([*self.first.values(), log.log_end_offset])
        self.check_guards()
        for entry in log.producers.entries.values():
            sequences = [seen.last_sequence for seen in entry.batches]
            assert sequences == sorted(sequences)

    def check_guards(self) -> None:
        assert len(self.log.producers.guards) <= len(PIDS) - len(self.first), "who is in a transaction has no guard"


@dataclass
class RaisingProducer(Producer):
    """One that goes by version 2. `client_epoch`: what its client knows; a fence by time-out it hears of later."""

    client_epoch: int = 0
    written: list[tuple[int, int]] = field(default_factory=list)  # markers that may come again: kind, epoch


class RaisingHistory(History):
    """The same with `transaction.version` 2: the leader adds the partition, and each end raises the epoch at once."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.raising = {pid: RaisingProducer(pid) for pid in PIDS}
        self.producers = dict(self.raising)
        self.late_batches = self.late_markers = self.unknown = 0

    def time_out(self, producer: Producer) -> None:
        producer.is_ending = ABORT
        producer.epoch += 1

    def step(self, producer: Producer) -> None:
        producer = self.raising[producer.pid]
        match self.chance.randrange(20):
            case 0 | 1 | 2 | 3 if len(producer.travelling) < 6:
                self.send(producer)
            case 4 | 5 | 6 if producer.travelling:
                self.begin(self.one(producer))
            case 7 | 8 | 9 if producer.travelling:
                self.answer(self.one(producer))
            case 10 | 11 | 12 if producer.travelling:
                self.append(self.one(producer))
            case 13 if producer.is_ending is None:
                self.end(producer)
            case 14 | 15 if producer.is_ending is not None:
                self.write_marker(producer)
            case 16 | 17 if producer.written:
                self.repeat_marker(producer)
            case 18 if producer.client_epoch < producer.epoch:
                self.hear(producer)
            case 19 if self.chance.random() < 0.2:
                list(self.log.producers.expiring(NOW + 100, 100))
            case _:
                pass

    def send(self, producer: Producer) -> None:
        """One in ten never arrives."""
        epoch = self.raising[producer.pid].client_epoch
        if self.chance.random() < 0.9:
            producer.travelling.append(Batch(producer.pid, epoch, producer.sequence, producer.number))
        producer.sequence += 1

    def begin(self, batch: Batch) -> None:
        states = self.log.producers
        if not states.is_in_transaction(batch.pid, batch.epoch):
            self.asked.setdefault(batch.pid, []).append(batch)
            batch.guard = states.guards.begin(batch.pid, batch.epoch, batch.sequence, NOW, raises=True)

    def answer(self, batch: Batch) -> None:
        """The partition is added, or it is to be asked again (CONCURRENT_TRANSACTIONS), or the epoch is fenced."""
        producer = self.producers[batch.pid]
        if batch.guard is not None and producer.is_ending is None and batch.epoch == producer.epoch:
            producer.has_partition = batch.is_answered = batch.guard.is_verified = True
        elif batch.guard is not None and batch.epoch < producer.epoch and self.chance.random() < 0.7:
            producer.travelling.remove(batch)

    def append(self, batch: Batch) -> None:
        producer = self.producers[batch.pid]
        before, is_known = self.taken, batch.pid in self.log.producers.entries
        is_first = batch.pid not in self.first
        super().append(batch)
        if self.taken == before:
            self.late_batches += batch.guard is None and batch.epoch < producer.epoch
            return
        assert batch.epoch == producer.epoch - (producer.is_ending is not None), "its own transaction, and no other"
        assert batch.sequence == 0 or not is_first, "a transaction begins with sequence 0"
        self.unknown += not is_known

    def end(self, producer: RaisingProducer) -> None:
        """EndTxn, or a time-out: PrepareX is stored with the next epoch. Without the partition there is no marker."""
        producer.epoch += 1
        if producer.has_partition:
            producer.is_ending = self.chance.choice((COMMIT, ABORT))
        if self.chance.random() < 0.9:
            self.hear(producer)

    def hear(self, producer: RaisingProducer) -> None:
        """The client goes on with the epoch of the answer; what it has sent before may still be on its way."""
        producer.client_epoch, producer.sequence = producer.epoch, 0
        if self.chance.random() < 0.5:
            producer.travelling.clear()

    def write_marker(self, producer: Producer) -> None:
        producer = self.raising[producer.pid]
        kind = producer.is_ending
        assert kind is not None
        self.mark(producer, kind, producer.epoch)
        self.first.pop(producer.pid, None)
        self.asked.pop(producer.pid, None)
        producer.written.append((kind, producer.epoch))
        producer.has_partition, producer.is_ending = False, None

    def repeat_marker(self, producer: RaisingProducer) -> None:
        """An earlier request of the coordinator arrives again; `check` sees whether it has ended anything."""
        try:
            self.mark(producer, *self.chance.choice(producer.written[-2:]))
        except ApiError as refused:
            self.refused.add(refused.code)
            self.late_markers += 1

    def check_guards(self) -> None:
        """Who is in a transaction may have the guard of the next one, while the marker is on its way."""
        assert len(self.log.producers.guards) <= len(PIDS)

    def mark(self, producer: Producer, kind: int, epoch: int) -> None:
        data = marker(kind, producer_id=producer.pid, producer_epoch=epoch)
        self.log.append_as_leader(data, 0, now_ms=NOW, origin=Origin.RAISING_COORDINATOR)


@pytest.mark.parametrize("first_seed", range(0, 100, 20))
def test_with_version_2_nothing_late_reaches_another_transaction(first_seed: int) -> None:
    taken = late_batches = late_markers = unknown = 0
    for seed in range(first_seed, first_seed + 20):
        history = RaisingHistory(seed)
        history.run(400)
        taken += history.taken
        late_batches += history.late_batches
        late_markers += history.late_markers
        unknown += history.unknown
    assert min(taken, late_batches) > 100
    assert late_markers > 50
    assert unknown > 10


@pytest.mark.parametrize("first_seed", range(0, 100, 20))
def test_no_order_lets_a_batch_in_that_no_transaction_has(first_seed: int) -> None:
    taken = 0
    for seed in range(first_seed, first_seed + 20):
        history = History(seed)
        history.run(400)
        taken += history.taken
    assert taken > 100
