"""How much is tried: all of it in `make proof`, which sets LOGYARD_EXPLORE, and a part elsewhere."""

import os

IS_PROOF = "LOGYARD_EXPLORE" in os.environ


def examples(count: int) -> int:
    """Of a property's examples those that are drawn: a third outside of `make proof`, which also draws new ones."""
    return count if IS_PROOF else count // 3
