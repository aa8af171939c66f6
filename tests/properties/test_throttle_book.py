"""Throttles with several owners: after any order of runs, crashes and foreign changes, the last foreign values
stand."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.reassignment.throttles.records import BROKER, HELD, TOPIC, ThrottleSetting, standing
from logyard.admin.reassignment.throttles.settings import throttle_settings
from logyard.broker.model import TopicPartition
from tests.support.lengths import examples
from tests.support.memory_clients import MemoryClient, MemoryPause
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_records import MemoryRecords

BROKERS = (1, 2, 3)
OWNERS = {
    "a": ([Move(TopicPartition("t", 0), (1,), (2,))], 100),
    "b": ([Move(TopicPartition("t", 1), (2,), (3,)), Move(TopicPartition("u", 0), (2,), (1,))], 200),
    "c": ([Move(TopicPartition("u", 1), (3,), (2,))], 100),
}
PLACES = sorted({place for moves, rate in OWNERS.values() for place in throttle_settings(moves, rate)})


class Crash(BaseException):
    """The process dies: nothing that it does after this happens."""


class Tapped:
    """Calls go on to what is behind, after `before` was asked."""

    def __init__(self, behind: Any, before: Callable[[], None]) -> None:
        self._behind, self._before = behind, before

    def __getattr__(self, name: str) -> Any:
        behind = getattr(self._behind, name)

        def call(*arguments: Any) -> Any:
            self._before()
            return behind(*arguments)

        return call


class Yard:
    """A cluster's settings, the records, and the values that others have set last."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster(dict.fromkeys(BROKERS))
        self.client = MemoryClient(self.cluster)
        for topic in ("t", "u"):
            self.client.create_topic(NewTopic(topic, 2, 1))
        self.records = MemoryRecords()
        self.theirs: dict[ThrottleSetting, str | None] = dict.fromkeys(PLACES)

    def book(self, before: Callable[[], None] = lambda: None) -> ThrottleBook:
        client, records = Tapped(self.client, before), Tapped(self.records, before)
        return ThrottleBook(client, records, MemoryPause(self.cluster), self.cluster.live())

    def table(self, place: ThrottleSetting) -> dict[str, str]:
        if place.kind == TOPIC:
            return self.cluster.configs[place.name]
        return self.cluster.broker_config.setdefault(int(place.name), {})

    def foreign(self, place: ThrottleSetting, value: str | None) -> None:
        self.theirs[place] = value
        self.table(place).pop(place.key, None)
        if value is not None:
            self.table(place)[place.key] = value

    def now(self) -> dict[ThrottleSetting, str | None]:
        return {place: self.table(place).get(place.key) for place in PLACES}

    def settle(self) -> None:
        """All brokers are back, all owners end."""
        self.cluster.sessions = dict.fromkeys(BROKERS, -1)
        for owner in OWNERS:
            assert self.book().release(owner) == []
        self.book().sweep(lambda owner: False, ())


def crashing(after: int) -> Callable[[], None]:
    left = [after]

    def before() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    return before


FOREIGN = {BROKER: ["5", "6", None], TOPIC: ["7:1", "7:2,7:3", "*", None]}
never = st.just(10_000)
steps = st.one_of(
    st.tuples(st.just("hold"), st.sampled_from(sorted(OWNERS)), st.one_of(never, st.integers(0, 25))),
    st.tuples(st.just("release"), st.sampled_from(sorted(OWNERS)), st.one_of(never, st.integers(0, 25))),
    st.sampled_from(PLACES).flatmap(
        lambda place: st.tuples(st.just("foreign"), st.just(place), st.sampled_from(FOREIGN[place.kind]))
    ),
    st.tuples(st.just("away"), st.sampled_from(BROKERS), st.just(0)),
    st.tuples(st.just("back"), st.sampled_from(BROKERS), st.just(0)),
    st.tuples(st.just("sweep"), st.sets(st.sampled_from(sorted(OWNERS))), st.one_of(never, st.integers(0, 25))),
)


def do(yard: Yard, kind: str, whom: Any, how: Any) -> None:
    if kind == "foreign":
        if whom.kind == TOPIC or int(whom.name) in yard.cluster.sessions:
            yard.foreign(whom, how)
    elif kind == "away":
        yard.cluster.sessions.pop(whom, None)
    elif kind == "back":
        yard.cluster.sessions[whom] = -1
    else:
        book = yard.book(crashing(how))
        try:
            if kind == "hold":
                book.hold(whom, *OWNERS[whom])
            elif kind == "release":
                book.release(whom)
            else:
                book.sweep(lambda owner: owner in whom, ())
        except Crash:
            pass


@given(st.lists(steps, max_size=14))
@settings(max_examples=examples(400), deadline=None)
def test_the_last_foreign_values_stand_in_the_end(history: list[tuple[str, Any, Any]]) -> None:
    yard = Yard()
    for step in history:
        do(yard, *step)
    yard.settle()
    assert yard.now() == yard.theirs
    assert yard.records.table == {}


@given(st.lists(steps.filter(lambda step: step[0] not in ("foreign", "away", "back")), max_size=10))
@settings(max_examples=examples(200), deadline=None)
def test_an_owners_throttle_stays_until_it_ends(history: list[tuple[str, Any, Any]]) -> None:
    """Ending somebody else's throttle does not remove it, and the latest owner's rate counts."""
    yard = Yard()
    for step in history:
        do(yard, *step)
    for owner in OWNERS:  # whoever died is tried again
        if owner in yard.book().owners() and yard.book().owners()[owner].state == HELD:
            yard.book().hold(owner, *OWNERS[owner])
    held = [record for record in yard.records.load() if record.state == HELD]
    for place in {place for record in held for place in record.claims}:
        assert yard.table(place).get(place.key) == standing(place, yard.records.load()) is not None


class Turns:
    """Two procedures in threads, one step at a time, in a given order."""

    def __init__(self, order: Iterator[bool]) -> None:
        self._order, self._turn = order, [threading.Semaphore(0), threading.Semaphore(0)]
        self._alive, self._back = [True, True], threading.Semaphore(0)

    def run(self, *work: Callable[[Callable[[], None]], None]) -> None:
        threads = [
            threading.Thread(target=self._body, args=(number, one), daemon=True) for number, one in enumerate(work)
        ]
        for thread in threads:
            thread.start()
        while any(self._alive):
            number = int(next(self._order, False))
            number = number if self._alive[number] else 1 - number
            self._turn[number].release()
            assert self._back.acquire(timeout=10)

    def _body(self, number: int, work: Callable[[Callable[[], None]], None]) -> None:
        self._turn[number].acquire()

        def step() -> None:
            self._back.release()
            self._turn[number].acquire()

        try:
            work(step)
        finally:
            self._alive[number] = False
            self._back.release()


@pytest.mark.parametrize(("first", "second"), [("release", "hold"), ("release", "release"), ("hold", "hold")])
@given(order=st.lists(st.booleans(), max_size=60), rate=st.sampled_from([None, "5"]))
@settings(max_examples=examples(150), deadline=None)
def test_two_at_the_same_time(first: str, second: str, order: list[bool], rate: str | None) -> None:
    yard = Yard()
    for place in PLACES:
        if place.kind == BROKER:
            yard.foreign(place, rate)
    for owner, kind in (("a", first), ("b", second)):
        if kind == "release":
            yard.book().hold(owner, *OWNERS[owner])

    def work(owner: str, kind: str) -> Callable[[Callable[[], None]], None]:
        def body(step: Callable[[], None]) -> None:
            book = yard.book(step)
            book.release(owner) if kind == "release" else book.hold(owner, *OWNERS[owner])

        return body

    Turns(iter(order)).run(work("a", first), work("b", second))
    records = yard.records.load()
    for record in records:
        for place in record.claims if record.state == HELD else ():
            assert yard.table(place).get(place.key) == standing(place, records)
    yard.settle()
    assert yard.now() == yard.theirs
    assert yard.records.table == {}


@pytest.mark.parametrize("second", ["release", "hold"])
@given(order=st.lists(st.booleans(), max_size=80), rate=st.sampled_from([None, "5"]))
@example(order=[*[False] * 3, *[True] * 13], rate=None)  # a hold whose record is dropped before it writes settings
@settings(max_examples=examples(100), deadline=None)
def test_two_with_the_same_throttle_at_the_same_time(second: str, order: list[bool], rate: str | None) -> None:
    """A task that is killed and the verification of its run, two runs that find what a dead one left, or a late end
    and the next try."""
    yard = Yard()
    for place in PLACES:
        if place.kind == BROKER:
            yard.foreign(place, rate)
    yard.book().hold("a", *OWNERS["a"])
    problems: list[Exception] = []

    def work(kind: str) -> Callable[[Callable[[], None]], None]:
        def body(step: Callable[[], None]) -> None:
            book = yard.book(step)
            try:
                book.release("a") if kind == "release" else book.hold("a", *OWNERS["a"])
            except Exception as problem:
                problems.append(problem)

        return body

    Turns(iter(order)).run(work("release"), work(second))
    assert problems == []
    yard.settle()
    assert yard.now() == yard.theirs
    assert yard.records.table == {}
