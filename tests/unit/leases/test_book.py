"""The book of leases: every move of docs/leases.md, and the refusal of the others."""

from typing import Any

import pytest

from logyard.broker.leases import book
from logyard.broker.leases.book import LIVING_MAX, REMEMBERED_MS, Lease, LeaseBook, LeaseError, LeaseState, Purpose
from logyard.broker.model import TopicPartition

TP = TopicPartition("t", 0)


class Book:
    """A book, the leases that ended in it, and a counter for ids."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, LeaseState]] = []
        self.book = LeaseBook(
            1000, lambda: self.passed_ms, lambda lease: self.ended.append((lease.lease_id, lease.state))
        )
        self.made = 0
        self.passed_ms = 0

    def tick(self, now_ms: int) -> None:
        """Both clocks are there."""
        self.passed_ms = now_ms
        self.book.expire_due(now_ms)

    def take(self, run: str = "r", purpose: Purpose = Purpose.COMPACT, now_ms: int = 0, end: int = 100) -> Lease:
        self.made += 1
        self.book.admit(TP, run, purpose, now_ms)
        return self.book.grant(
            f"L{self.made}",
            TP,
            run,
            purpose,
            leader_epoch=3,
            end_offset=end,
            log_end_offset=end,
            ttl_ms=60_000,
            now_ms=now_ms,
        )


def code(error: pytest.ExceptionInfo[LeaseError]) -> str:
    return error.value.code


def test_one_compact_lease_per_replica_but_audits_beside_it() -> None:
    made = Book()
    made.take("a")
    with pytest.raises(LeaseError) as held:
        made.take("b")
    assert code(held) == "lease_held"
    assert held.value.extra["run_id"] == "a"
    for n in range(LIVING_MAX - 1):
        made.take(f"audit-{n}", Purpose.AUDIT)
    with pytest.raises(LeaseError) as many:
        made.take("one-more", Purpose.AUDIT)
    assert code(many) == "too_many_leases"


def test_the_same_run_takes_its_lease_again_with_a_larger_generation() -> None:
    made = Book()
    first = made.take("a")
    second = made.take("a")
    assert second.generation > first.generation
    assert made.ended == [("L1", LeaseState.ABORTED)]
    with pytest.raises(LeaseError) as ended:
        made.book.find_active("L1", first.generation)
    assert code(ended) == "lease_ended"
    with pytest.raises(LeaseError) as zombie:
        made.book.find_active("L2", first.generation)
    assert code(zombie) == "wrong_generation"


def test_a_silent_lease_expires_and_is_forgotten_later() -> None:
    made = Book()
    lease = made.take()
    made.passed_ms = 50_000
    made.book.renew(lease, 50_000)
    made.tick(60_000)
    assert lease.state is LeaseState.ACTIVE
    made.tick(110_000)
    assert made.ended == [("L1", LeaseState.EXPIRED)]
    assert made.book.find("L1") is lease
    made.tick(110_000 + 600_000)
    with pytest.raises(LeaseError) as unknown:
        made.book.find("L1")
    assert code(unknown) == "unknown_lease"


def test_committing_neither_expires_nor_is_retaken() -> None:
    made = Book()
    lease = made.take()
    made.book.begin_commit(lease, "digest")
    made.tick(10**9)
    assert lease.state is LeaseState.COMMITTING
    with pytest.raises(LeaseError) as busy:
        made.take()
    assert code(busy) == "commit_in_progress"
    made.book.refuse_commit(lease, 10**9)
    assert lease.state is LeaseState.ACTIVE
    assert lease.expires_at_ms == 10**9 + 60_000
    made.book.begin_commit(lease, "digest")
    made.book.committed(lease, {"records": 1}, 10**9)
    assert made.ended == [("L1", LeaseState.COMMITTED)]
    made.book.abort(lease, "late", 10**9)
    assert lease.state is LeaseState.COMMITTED


def test_truncation_below_the_end_loses_the_lease_above_it_does_not() -> None:
    made = Book()
    lease = made.take(end=100)
    made.book.lose_replica(TP, "truncated", 0, truncated_to=100)
    assert lease.living
    made.book.lose_replica(TP, "truncated", 0, truncated_to=99)
    assert lease.state is LeaseState.LOST
    assert not made.book.is_being_compacted(TP)


def test_a_wall_clock_that_is_set_neither_ends_nor_prolongs_a_lease() -> None:
    made = Book()
    lease = made.take()
    made.book.expire_due(now_ms=10**9)
    assert lease.state is LeaseState.ACTIVE
    made.passed_ms = 60_000
    made.book.expire_due(now_ms=-(10**9))
    assert lease.state is LeaseState.EXPIRED


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is looked at in leases."""
    looked: list[str] = []

    def counted(name: str, slot: Any) -> property:
        def read(lease: Lease) -> Any:
            looked.append(name)
            return slot.__get__(lease)

        return property(read, slot.__set__)

    for name in ("tp", "due_ms"):
        monkeypatch.setattr(Lease, name, counted(name, getattr(Lease, name)))
    return looked


def test_what_is_remembered_costs_no_request_anything(looks: list[str]) -> None:
    """Who takes leases and lets them go left thousands, all of which were looked at whenever one was forgotten."""
    made = Book()
    for number in range(1000):
        made.tick(number)
        made.book.abort(made.take(), "done", number)
    looks.clear()
    for number in range(1000):
        assert len(list(made.book)) == 1000 - number
        made.tick(REMEMBERED_MS + number)
    assert list(made.book) == []
    assert len(looks) < 10_000


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "REMEMBERED_MAX", 3)
    made = Book()
    for number in range(5):
        made.book.abort(made.take(), "done", number)
    living = made.take()
    made.tick(10)
    assert [lease.lease_id for lease in made.book] == ["L3", "L4", "L5", living.lease_id]


def test_a_lease_costs_the_same_beside_thousands(looks: list[str]) -> None:
    """Every request asks what is due, and the cleaner asks of every log whether it is held."""
    made = Book()
    for number in range(1000):
        tp = TopicPartition("t", number)
        made.book.admit(tp, "r", Purpose.COMPACT, 0)
        made.book.grant(
            f"L{number}",
            tp,
            "r",
            Purpose.COMPACT,
            leader_epoch=3,
            end_offset=9,
            log_end_offset=9,
            ttl_ms=60_000,
            now_ms=0,
        )
        made.tick(number)
    assert made.book.is_being_compacted(TopicPartition("t", 500))
    assert len(looks) < 10_000
    made.tick(70_000)
    assert len(made.ended) == 1000
    assert not made.book.is_being_compacted(TopicPartition("t", 500))
    made.tick(70_000 + REMEMBERED_MS)
    assert list(made.book) == []
