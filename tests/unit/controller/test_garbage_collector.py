"""The garbage collector's patience ends with the last take-over that asked for it."""

import gc

from logyard.broker.controller.garbage_collector import patient


def test_patience_is_lent_and_given_back() -> None:
    before = gc.get_threshold()
    with patient:
        lent = gc.get_threshold()
        with patient:
            assert gc.get_threshold() == lent
        assert gc.get_threshold() == lent
        assert lent[0] > before[0]
    assert gc.get_threshold() == before
