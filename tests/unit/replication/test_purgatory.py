"""Waiting operations: completed exactly once, by key or by time."""

from collections.abc import Hashable

from logyard.broker.replication.purgatory import Delayed, Purgatory
from tests.support.replica_world import World


class Wish(Delayed):
    def __init__(self) -> None:
        super().__init__()
        self.granted = False
        self.answers: list[bool] = []
        self.asked: list[Hashable | None] = []

    def is_ready(self, key: Hashable | None) -> bool:
        self.asked.append(key)
        return self.granted

    def answer(self, *, expired: bool) -> None:
        self.answers.append(expired)


def test_what_is_ready_does_not_wait() -> None:
    purgatory, wish = Purgatory(World()), Wish()
    wish.granted = True
    assert purgatory.try_complete_else_watch(wish, ["a"], 100)
    assert (wish.answers, purgatory.waiting, purgatory.has("a")) == ([False], 0, False)


def test_any_of_its_keys_wakes_it_and_it_answers_once() -> None:
    world = World()
    purgatory, wish = Purgatory(world), Wish()
    purgatory.try_complete_else_watch(wish, ["a", "b"], 100)
    assert purgatory.check("c") == purgatory.check("a") == 0
    wish.granted = True
    assert purgatory.check("b") == 1
    assert purgatory.check("a") == purgatory.check("b") == 0
    world.advance(1000)
    assert (wish.answers, wish.asked, purgatory.waiting) == ([False], [None, "a", "b"], 0)


def test_time_answers_once_and_cleans_up() -> None:
    world = World()
    purgatory, wish = Purgatory(world), Wish()
    purgatory.try_complete_else_watch(wish, ["a"], 100)
    world.advance(99)
    assert wish.answers == []
    world.advance(1)
    wish.granted = True
    assert purgatory.check("a") == 0
    assert (wish.answers, purgatory.expirations, purgatory.has("a")) == ([True], 1, False)


def test_an_answer_may_check_the_same_key_again() -> None:
    """Completing one may make the next ready: no operation is lost or answered twice."""
    purgatory = Purgatory(World())
    told = []

    class Waking(Wish):
        def answer(self, *, expired: bool) -> None:
            told.append("first")
            purgatory.check("a")

    first, second = Waking(), Wish()
    for wish in (first, second):
        purgatory.try_complete_else_watch(wish, ["a"], 100)
        wish.granted = True
    purgatory.check("a")
    assert (told, second.answers) == (["first"], [False])


def test_a_shutdown_answers_waiting_and_later_operations() -> None:
    purgatory, wishes, late = Purgatory(World()), [Wish(), Wish()], Wish()
    for wish in wishes:
        purgatory.try_complete_else_watch(wish, ["a", "b"], 100)
    purgatory.close()
    assert purgatory.try_complete_else_watch(late, ["a"], 100)
    assert [w.answers for w in (*wishes, late)] == [[True], [True], [True]]
