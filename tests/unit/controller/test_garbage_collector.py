"""Full garbage collections are rare until the last take-over that asked for it has ended."""

import gc

import pytest

from logyard.broker.controller import garbage_collector
from logyard.broker.controller.garbage_collector import lasting, patient
from tests.support import collecting


def test_collections_are_rare_only_inside_the_context() -> None:
    before = gc.get_threshold()
    with patient:
        lent = gc.get_threshold()
        with patient:
            assert gc.get_threshold() == lent
        assert gc.get_threshold() == lent
        assert lent[0] > before[0]
    assert gc.get_threshold() == before


def test_what_a_small_take_over_makes_is_searched_as_before() -> None:
    frozen = gc.get_freeze_count()
    with lasting():
        made = [[n] for n in range(1000)]
    assert gc.get_freeze_count() <= frozen, "less, if something of another test has just gone"
    assert len(made) == 1000


def test_what_a_large_take_over_makes_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collector, "never_search", gc.freeze)  # as it is in a broker of its own process
    frozen, before = gc.get_freeze_count(), gc.get_threshold()
    try:
        with lasting():
            made = [[n] for n in range(120_000)]
        assert gc.get_freeze_count() >= frozen + len(made)
        assert gc.get_threshold() == before
        kept = gc.get_freeze_count()
        made.clear()
        assert gc.get_freeze_count() <= kept - 120_000, "they go when nothing names them"
    finally:
        gc.unfreeze()
        collecting.leave_out()  # as tests/conftest.py does
