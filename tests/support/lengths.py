"""How much is tried: all of it in `make proof`, which sets LOGYARD_EXPLORE, and a part elsewhere."""

import os

IS_PROOF = "LOGYARD_EXPLORE" in os.environ


def examples(count: int) -> int:
    """Of a property's examples those that are drawn: a third outside of `make proof`, which also draws new ones."""
    return count if IS_PROOF else count // 3


def some(places: range, first: int = 0, of: int = 3) -> range:
    """Of the places at which something is made to fail, all in `make proof`, elsewhere one of so many from `first` on.

    As many kinds of failure as that, which each begin elsewhere, meet every place together.
    """
    return places if IS_PROOF else places[first % of :: of]
