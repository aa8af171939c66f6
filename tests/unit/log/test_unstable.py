"""Which transactions hold the last stable offset back: against a look at all of them, and what a step costs."""

import tracemalloc
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.log.producers import CompletedTxn, ProducerEntry, ProducerStates
from logyard.broker.log.unstable import Unstable

steps = st.lists(st.tuples(st.sampled_from(["batch", "marker", "watermark"]), st.integers(0, 5)), max_size=60)


class Model:
    """The same by a look at all transactions."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.ended: list[CompletedTxn] = []

    def first(self) -> int | None:
        return min([*self.open.values(), *(done.first_offset for done in self.ended)], default=None)


@settings(max_examples=300, deadline=None)
@given(steps, st.booleans())
def test_it_is_what_a_look_at_all_finds(history: list[tuple[str, int]], backwards: bool) -> None:
    states, model = ProducerStates(), Model()
    watermark = 0
    for number, (what, producer_id) in enumerate(history):
        offset = 1000 - number if backwards else number  # a moved log takes over what began before its start
        begun = model.open.get(producer_id)
        if what == "batch" and begun is None:
            model.open[producer_id] = offset
            states.remember(ProducerEntry(producer_id, 0, txn_first_offset=offset))
        elif what == "marker" and begun is not None:
            done = CompletedTxn(producer_id, begun, max(offset, begun), True)
            others = [first for other, first in model.open.items() if other != producer_id]
            expected = min(others, default=done.last_offset + 1)
            assert states.stable_offset_after(done) == expected, "while it counts as open"
            del model.open[producer_id]
            states.remember(ProducerEntry(producer_id, 0))
            assert states.stable_offset_after(done) == expected
            model.ended.append(done)
            states.remember_completed(done)
        elif what == "watermark":
            watermark = max(watermark, offset - producer_id)
            model.ended = [done for done in model.ended if done.last_offset >= watermark]
            states.high_watermark_moved(watermark)
        assert states.first_unstable_offset == model.first()
        assert states.open_transactions == model.open
    again = ProducerStates(states.entries.values())
    assert again.first_unstable_offset == min(model.open.values(), default=None)


class Compared(int):
    """An offset that counts comparisons."""

    count = 0

    def __lt__(self, other: object) -> bool:
        Compared.count += 1
        return int(self) < int(cast(int, other))

    def __gt__(self, other: object) -> bool:
        Compared.count += 1
        return int(self) > int(cast(int, other))

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return int.__eq__(self, other)

    __hash__ = int.__hash__


def comparisons(opened: int) -> int:
    """How many offsets are compared when 100 more transactions begin and end while so many are open."""
    states = ProducerStates(ProducerEntry(n, 0, txn_first_offset=Compared(n)) for n in range(opened))
    Compared.count = 0
    for number, producer_id in enumerate([*range(50), *range(opened, opened + 50)]):
        offset = Compared(opened + 2 * number)
        if producer_id >= opened:
            states.remember(ProducerEntry(producer_id, 0, txn_first_offset=offset))
        states.remember(ProducerEntry(producer_id, 0))
        done = CompletedTxn(producer_id, Compared(producer_id), Compared(offset + 1), True)
        states.stable_offset_after(done)
        states.remember_completed(done)
        states.is_late(0)
        states.high_watermark_moved(Compared(offset - 20))
    return Compared.count


def test_a_step_costs_the_same_however_many_are_open() -> None:
    assert comparisons(20_000) < 3 * comparisons(200)


def test_one_that_stays_open_keeps_no_room_for_those_that_end() -> None:
    unstable = Unstable([(1, 0)])
    tracemalloc.start()
    try:
        for number in range(10_000):
            unstable.begin(2, number + 1)
            unstable.end(2)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert unstable.first_offset() == 0
    assert kept < 100_000
