"""Who may begin a transaction in a log, and in which order (KIP-890)."""

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.log.append import AppendInfo
from logyard.broker.log.guards import Guard, Guards, VerificationSwitch
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.records.batch import stamp
from logyard.broker.records.decode import ABORT, COMMIT
from tests.support.logs import NOW, fetched, marker, new_log, produced, refusal

PID = 7


class World:
    """A log whose transactions are verified."""

    def __init__(self) -> None:
        self.log: PartitionLog = new_log()
        self.log.host.verification.is_on = True
        self.guards = self.log.producers.guards

    def begin(self, sequence: int = 0, epoch: int = 0) -> Guard:
        return self.guards.begin(PID, epoch, sequence, NOW)

    def verify(self, sequence: int = 0, epoch: int = 0) -> Guard:
        guard = self.begin(sequence, epoch)
        guard.is_verified = True
        return guard

    def append(self, sequence: int = 0, epoch: int = 0, origin: Origin = Origin.CLIENT) -> AppendInfo:
        data = produced([b"x"], producer_id=PID, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        return self.log.append_as_leader(data, 0, now_ms=NOW, origin=origin)

    def append_and_end(self) -> None:
        self.verify()
        self.append()
        self.end()

    def end(self, kind: int = COMMIT, epoch: int = 0) -> None:
        data = marker(kind, producer_id=PID, producer_epoch=epoch)
        self.log.append_as_leader(data, 0, now_ms=NOW, origin=Origin.COORDINATOR)

    def refusal(self, sequence: int = 0, epoch: int = 0, origin: Origin = Origin.CLIENT) -> ErrorCode:
        end = self.log.log_end_offset
        code = refusal(self.append, sequence, epoch, origin)
        assert self.log.log_end_offset == end
        return code


@pytest.fixture
def world() -> World:
    return World()


def test_a_guard_that_is_given_up_is_not_kept_and_no_other_goes_with_it(world: World) -> None:
    guard = world.begin()
    later = world.begin(epoch=1)
    guard.give_up()
    assert len(world.guards) == 1, "that is of a later epoch"
    later.give_up()
    later.give_up()
    assert len(world.guards) == 0
    assert world.refusal(epoch=1) is ErrorCode.INVALID_TXN_STATE
    world.verify(epoch=1)
    world.append(epoch=1)


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_a_transaction_begins_with_a_verified_guard_only(world: World, origin: Origin) -> None:
    assert world.refusal(origin=origin) is ErrorCode.INVALID_TXN_STATE
    guard = world.begin()
    assert world.refusal(origin=origin) is ErrorCode.INVALID_TXN_STATE
    guard.is_verified = True
    world.append(origin=origin)
    assert len(world.guards) == 0
    world.append(1, origin=origin)  # the transaction is open now


def test_who_asks_again_gets_the_same_guard_and_a_new_one_after_the_transaction(world: World) -> None:
    first = world.begin()
    assert world.begin(3) is first
    first.is_verified = True
    world.append()
    world.end()
    assert world.begin(1) is not first


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_verification_that_a_marker_overtook_does_not_count(world: World, kind: int) -> None:
    """KAFKA-12671, KAFKA-14884: the batch would hold the last stable offset back for ever."""
    late = world.begin()
    world.end(kind)
    late.is_verified = True
    assert world.refusal() is ErrorCode.INVALID_TXN_STATE
    world.begin()  # of the next transaction, which does not have the partition yet
    assert world.refusal() is ErrorCode.INVALID_TXN_STATE
    assert world.log.producers.first_unstable_offset is None


def test_a_marker_needs_no_guard(world: World) -> None:
    world.end()
    assert world.log.log_end_offset == 1


def test_a_replicated_batch_or_marker_ends_the_guard(world: World) -> None:
    world.verify()
    data = bytearray(marker(COMMIT, producer_id=PID))
    stamp(data, 0, world.log.log_end_offset, 0)
    world.log.append_as_follower(memoryview(data))
    assert len(world.guards) == 0
    world.verify()
    fields = {"producer_id": PID, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    world.log.append_as_follower(memoryview(fetched(world.log.log_end_offset, [b"x"], **fields)))
    assert len(world.guards) == 0


def test_a_batch_outside_of_transactions_leaves_the_guard(world: World) -> None:
    world.verify()
    data = produced([b"x"], producer_id=PID, producer_epoch=0, base_sequence=0)
    world.log.append_as_leader(data, 0, now_ms=NOW)
    assert len(world.guards) == 1


def test_the_lowest_sequence_comes_first(world: World) -> None:
    """KAFKA-14920: a later batch whose verification came through may not take the place of one that failed."""
    world.append_and_end()
    world.begin(4)
    world.verify(2)
    world.verify(3)
    assert world.refusal(3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.refusal(4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.refusal(2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # 1 is next in the log
    world.verify(1)
    world.append(1)
    world.append(2)


def test_an_unknown_producer_may_not_begin_behind_a_batch_that_failed(world: World) -> None:
    world.begin(0)
    world.verify(5)
    assert world.refusal(5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    world.append(0)


def test_a_resend_between_transactions_leaves_its_sequence(world: World) -> None:
    """As in Kafka: the batch has to come first, and cannot."""
    world.append_and_end()
    world.begin(0)
    world.verify(1)
    assert world.refusal(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_is_told_its_offset_whatever_the_guards_say(world: World) -> None:
    world.verify()
    first = world.append()
    world.end()
    again = world.append()
    assert (again.duplicate, again.first_offset) == (True, first.first_offset)


def test_a_higher_epoch_begins_anew(world: World) -> None:
    old = world.verify(3)
    new = world.begin(0, epoch=1)
    assert (new is old, new.lowest_sequence, new.is_verified) == (False, 0, False)
    assert world.begin(1, epoch=0) is new, "an older epoch changes nothing"
    assert new.lowest_sequence == 0
    new.is_verified = True
    assert world.refusal(3, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    world.append(0, epoch=1)


def test_a_stale_epoch_is_told_before_a_missing_guard(world: World) -> None:
    """KAFKA-19690: after a time-out the markers carry the next epoch, and 48 would end a client that 47 does not."""
    world.verify()
    world.append()
    world.end(ABORT, epoch=1)
    assert world.refusal(1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    world.begin(1, epoch=0)
    assert world.refusal(1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_offsets_in_transactions_have_no_sequence(world: World) -> None:
    world.verify(-1)
    world.append(0, origin=Origin.COORDINATOR)


def test_where_nothing_is_verified_anything_may_begin(world: World) -> None:
    world.log.host.verification.is_on = False
    world.append()
    world.end()
    world.log.host.verification.is_on = True
    assert world.refusal(1) is ErrorCode.INVALID_TXN_STATE


def test_an_open_transaction_of_an_earlier_epoch_is_another_one(world: World) -> None:
    world.verify()
    world.append()
    assert world.log.producers.is_in_transaction(PID, 0)
    assert not world.log.producers.is_in_transaction(PID, 1)
    assert world.refusal(epoch=1) is ErrorCode.INVALID_TXN_STATE


def test_idle_guards_expire_with_producer_ids(world: World) -> None:
    world.verify()
    list(world.log.producers.expiring(NOW + 99, 100))
    assert len(world.guards) == 1
    list(world.log.producers.expiring(NOW + 100, 100))
    assert len(world.guards) == 0
    assert world.refusal() is ErrorCode.INVALID_TXN_STATE


def test_guards_of_a_log_that_stands_alone_refuse_nobody() -> None:
    Guards(VerificationSwitch()).check(PID, 0, 5)
