"""The checks of transactions: what each refuses, and that a planted bug in the broker meets it in a simulated run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.markers.routing import Completion
from logyard.broker.transactions.ports import Marker
from tests.simulation import balances, run, scenario
from tests.simulation.bankers import Banker
from tests.simulation.ledger import BrokenPromise
from tests.simulation.plan import Plan, plan
from tests.simulation.reads import Reads
from tests.simulation.run import run_seed
from tests.simulation.transfers import Fate, Transfer, Transfers

STEPS, WITHIN = 300, 5
ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def transfers() -> Transfers:
    return Transfers()


def begun(transfers: Transfers, fate: Fate) -> Transfer:
    """A transfer of two records, one on each partition."""
    transfer = transfers.account("ann").begin(with_offset=False)
    for tp in (ONE, OTHER):
        transfer.add(tp, 1)
    transfer.fate = fate
    return transfer


@pytest.mark.parametrize("fate", [Fate.ABORTED, Fate.NOT_ASKED])
def test_what_was_not_committed_may_not_be_shown(transfers: Transfers, fate: Fate) -> None:
    ((tp, value), _) = begun(transfers, fate).values
    with pytest.raises(BrokenPromise, match="of its transaction"):
        transfers.saw(tp, 0, value)


def test_a_record_at_two_offsets(transfers: Transfers) -> None:
    ((tp, value), _) = begun(transfers, Fate.COMMITTED).values
    transfers.saw(tp, 0, value)
    transfers.saw(tp, 0, value)
    with pytest.raises(BrokenPromise, match="twice"):
        transfers.saw(tp, 3, value)


@pytest.mark.parametrize(
    ("fate", "shown", "broken"),
    [
        (Fate.COMMITTED, 2, ""),
        (Fate.COMMITTED, 1, "lost"),
        (Fate.COMMITTED, 0, "lost"),
        (Fate.UNKNOWN, 2, ""),
        (Fate.UNKNOWN, 1, "torn"),
        (Fate.UNKNOWN, 0, ""),
    ],
)
def test_a_transaction_is_shown_whole_or_not_at_all(transfers: Transfers, fate: Fate, shown: int, broken: str) -> None:
    for tp, value in begun(transfers, fate).values[:shown]:
        transfers.saw(tp, 0, value)
    if broken:
        with pytest.raises(BrokenPromise, match=broken):
            transfers.settle()
    else:
        transfers.settle()


def test_the_bank_holds_what_it_held_at_the_start() -> None:
    debit, credit = balances.place("a"), balances.place("d")
    entries = {debit: [(4, b"bank 0 0 a 60")], credit: [(7, b"bank 0 1 d 140")]}
    assert balances.balances({}, {}) == dict.fromkeys("abcd", 100)
    assert balances.balances(entries, {debit: 5, credit: 8}) == {"a": 60, "b": 100, "c": 100, "d": 140}
    assert balances.balances(entries, {debit: 4, credit: 7}) == dict.fromkeys("abcd", 100)
    with pytest.raises(BrokenPromise, match="holds 360 and not 400"):
        balances.balances(entries, {debit: 5, credit: 7})


@pytest.mark.parametrize(
    ("reads", "is_circular"),
    [
        ([], False),
        ([(1, 2), (2, 3), (1, 3)], False),
        ([(1, 2), (2, 1)], True),
        ([(1, 2), (2, 3), (4, 1), (3, 1)], True),
        ([(1, 1)], True),
    ],
)
def test_reads_in_a_circle(reads: list[tuple[int, int]], is_circular: bool) -> None:
    noted = Reads()
    for reader, writer in reads:
        noted.note(("ann", reader), b"ann %d 0" % writer)
    if is_circular:
        with pytest.raises(BrokenPromise, match="each other's writes"):
            noted.check()
    else:
        noted.check()


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without faults: what is found is the planted bug."""

    def drawn(seed: int, **options: Any) -> Plan:
        return replace(plan(seed, **options), fault_chance=0.0, change_chance=0.0)

    monkeypatch.setattr(run, "plan", drawn)


def caught() -> str:
    """What the first of some seeds to fail says."""
    for seed in range(1, WITHIN + 1):
        try:
            run_seed(seed, STEPS)
        except BrokenPromise as broken:
            return str(broken)
    return ""


@pytest.mark.simulation
@pytest.mark.usefixtures("calm")
def test_a_marker_of_the_wrong_kind_is_caught_by_the_banks_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that commits on one partition and aborts on the other; the reader of values looks away."""
    marker: Callable[..., Marker] = Completion.marker

    def torn(completion: Completion, partitions: Any) -> Marker:
        made = marker(completion, partitions)
        return replace(made, commits=made.commits and TopicPartition(Banker.topic, 1) not in made.partitions)

    monkeypatch.setattr(Completion, "marker", torn)
    monkeypatch.setattr(Transfers, "saw", lambda *_: None)
    assert "the bank holds" in caught()


@pytest.mark.simulation
@pytest.mark.usefixtures("calm")
def test_reads_of_open_transactions_are_caught_as_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose last stable offset is its high watermark; the readers of values and the bank look away."""
    monkeypatch.setattr(PartitionLog, "last_stable_offset", property(lambda log: log.high_watermark))
    monkeypatch.setattr(Transfers, "saw", lambda *_: None)
    monkeypatch.setattr(Transfers, "settle", lambda *_: None)
    monkeypatch.setattr(Transfers, "check_offset", lambda *_: None)
    monkeypatch.setattr(scenario, "BANKERS", 0)
    assert "each other's writes" in caught()
