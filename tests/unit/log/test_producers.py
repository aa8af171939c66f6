"""Producer states: sequences, transactions, snapshots (facts §12, §17)."""

import crc32c
import pytest

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.log.producers import (
    SEQUENCE_MAX,
    DataBatch,
    Marker,
    Origin,
    ProducerEntry,
    ProducerStates,
    SeenBatch,
    advance,
    decode_snapshot,
    encode_snapshot,
    end_transaction,
    sequence_before,
)


def data(first: int, last: int, *, epoch: int = 0, offset: int = 0, txn: bool = False) -> DataBatch:
    return DataBatch(7, epoch, first, last, offset, offset + 1, 1000, txn)


def entry(last: int, *, epoch: int = 0, delta: int = 0) -> ProducerEntry:
    return ProducerEntry(7, epoch, batches=(SeenBatch(last, 10, delta, 1000),))


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert advance(None, data(55, 56), Origin.CLIENT).last_sequence == 56


def test_sequences_wrap_to_zero() -> None:
    after = advance(entry(SEQUENCE_MAX), data(0, 1), Origin.CLIENT)
    assert after.last_sequence == 1
    assert sequence_before(1, 3) == SEQUENCE_MAX - 1
    wrapped = ProducerEntry(7, 0, batches=(SeenBatch(1, 10, 3, 0),))
    assert wrapped.duplicate_of(0, SEQUENCE_MAX - 1, 1) == wrapped.batches[0]


@pytest.mark.parametrize(
    ("known", "batch", "code"),
    [
        (entry(5), data(7, 8), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (entry(5), data(5, 5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (entry(5), data(6, 6, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (entry(5, epoch=2), data(6, 6, epoch=1), ErrorCode.INVALID_PRODUCER_EPOCH),
        (ProducerEntry(7, 0), data(3, 3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_refusals(known: ProducerEntry, batch: DataBatch, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        advance(known, batch, Origin.CLIENT)
    assert refused.value.code is code
    assert advance(known, batch, Origin.LEADER).last_sequence == batch.last_sequence


def test_coordinators_are_checked_for_epochs_only() -> None:
    assert advance(entry(5), data(9, 9), Origin.COORDINATOR).last_sequence == 9
    with pytest.raises(ApiError):
        advance(entry(5, epoch=2), data(6, 6, epoch=1), Origin.COORDINATOR)


def test_the_last_five_batches_are_kept_and_a_new_epoch_forgets_them() -> None:
    state: ProducerEntry | None = None
    for sequence in range(8):
        state = advance(state, data(sequence, sequence, offset=sequence), Origin.CLIENT)
    assert state is not None
    assert [seen.last_sequence for seen in state.batches] == [3, 4, 5, 6, 7]
    fresh = advance(state, data(0, 0, epoch=1), Origin.CLIENT)
    assert [seen.last_sequence for seen in fresh.batches] == [0]
    assert fresh.duplicate_of(0, 7, 7) is None


def test_a_marker_ends_the_transaction_and_may_raise_the_epoch() -> None:
    open_one = advance(None, data(0, 1, offset=20, txn=True), Origin.CLIENT)
    assert open_one.txn_first_offset == 20
    ended, done = end_transaction(open_one, Marker(7, 1, 3, 25, 2000, True), Origin.COORDINATOR)
    assert done == (7, 20, 25, True)
    assert (ended.epoch, ended.coordinator_epoch, ended.txn_first_offset, ended.batches) == (1, 3, -1, ())
    again, nothing = end_transaction(ended, Marker(7, 1, 3, 26, 2000, True), Origin.COORDINATOR)
    assert nothing is None
    with pytest.raises(ApiError, match="coordinator epoch 2"):
        end_transaction(again, Marker(7, 1, 2, 27, 2000, True), Origin.COORDINATOR)


def test_the_oldest_transaction_that_is_open_or_not_replicated_is_unstable() -> None:
    states = ProducerStates()
    for producer_id, first in ((1, 10), (2, 20), (3, 30)):
        states.remember(ProducerEntry(producer_id, 0, txn_first_offset=first))
    assert states.first_unstable_offset == 10
    ended, done = end_transaction(states.entries[1], Marker(1, 0, 0, 40, 0, False), Origin.LEADER)
    assert done is not None
    states.remember(ended)
    assert states.stable_offset_after(done) == 20
    states.remember_completed(done)
    assert states.first_unstable_offset == 10
    states.high_watermark_moved(40)
    assert states.first_unstable_offset == 10
    states.high_watermark_moved(41)
    assert states.first_unstable_offset == 20


def test_silent_producers_expire_unless_in_a_transaction() -> None:
    states = ProducerStates(
        [
            ProducerEntry(1, 0, last_timestamp=100),
            ProducerEntry(2, 0, last_timestamp=100, txn_first_offset=5),
            ProducerEntry(3, 0, last_timestamp=150),
        ]
    )
    known = len(states)
    list(states.expiring(200, 100))
    assert known - len(states) == 1
    assert sorted(states.entries) == [2, 3]


def test_a_cut_is_followed_without_the_log_where_enough_is_remembered() -> None:
    seen = [SeenBatch(2 * n + 1, 10 * n + 1, 1, 100 + n) for n in range(5)]
    states = ProducerStates([ProducerEntry(1, 0, -1, 104, -1, tuple(seen)), ProducerEntry(2, 3, -1, 9, -1, (seen[0],))])
    assert states.cut(21)
    assert states.entries[1] == ProducerEntry(1, 0, -1, 101, -1, tuple(seen[:2]))
    assert states.entries[2] == ProducerEntry(2, 3, -1, 9, -1, (seen[0],))
    before = dict(states.entries)
    assert not states.cut(1), "nothing of either is left"
    assert states.entries == before
    for transactional in (ProducerEntry(3, 0, 0, 5), ProducerEntry(3, 0, -1, 5, 4, (SeenBatch(0, 4, 0, 5),))):
        assert not ProducerStates([transactional]).cut(100)


def test_snapshot_bytes() -> None:
    entries = [
        ProducerEntry(4000, 3, 2, 1_700_000_000_000, 90, (SeenBatch(99, 4990, 9, 1_700_000_000_000),)),
        ProducerEntry(4001, 0, 5, 1_600_000_000_000),
    ]
    written = encode_snapshot(entries)
    body = bytes.fromhex(
        "00000002"
        "0000000000000fa0 0003 00000063 000000000000137e 00000009 0000018bcfe56800 00000002 000000000000005a"
        "0000000000000fa1 0000 ffffffff ffffffffffffffff 00000000 00000174876e8000 00000005 ffffffffffffffff"
    )
    assert written[:2] == b"\0\1"
    assert written[2:6] == crc32c.crc32c(body).to_bytes(4, "big")
    assert written[6:] == body
    assert decode_snapshot(written) == entries
    assert encode_snapshot([])[6:] == b"\0\0\0\0"


def test_a_snapshot_keeps_only_the_last_batch() -> None:
    two = ProducerEntry(1, 0, -1, 5, -1, (SeenBatch(0, 0, 0, 5), SeenBatch(1, 1, 0, 5)))
    assert decode_snapshot(encode_snapshot([two]))[0].batches == (SeenBatch(1, 1, 0, 5),)


@pytest.mark.parametrize("at", [0, 3, 12, -1])
def test_damaged_snapshots_are_refused(at: int) -> None:
    written = bytearray(encode_snapshot([ProducerEntry(1, 0)]))
    written[at] ^= 0x40
    with pytest.raises(CorruptData):
        decode_snapshot(bytes(written))
    with pytest.raises(CorruptData):
        decode_snapshot(bytes(written[:5]))
