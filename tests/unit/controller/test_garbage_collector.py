"""Full garbage collections are rare until the last take-over that asked for it has ended."""

import gc

from logyard.broker.controller.garbage_collector import patient


def test_collections_are_rare_only_inside_the_context() -> None:
    before = gc.get_threshold()
    with patient:
        lent = gc.get_threshold()
        with patient:
            assert gc.get_threshold() == lent
        assert gc.get_threshold() == lent
        assert lent[0] > before[0]
    assert gc.get_threshold() == before
