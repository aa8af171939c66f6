"""The cluster's finalized features, as this broker last read them (KIP-584)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_EPOCH = -1


@dataclass(slots=True)
class FinalizedFeatures:
    """`epoch` is the data version of /feature, -1 before it was read; `levels` by name.

    Written by the watch on /feature alone, on the event loop; everyone else reads.
    """

    epoch: int = UNKNOWN_EPOCH
    levels: Mapping[str, int] = field(default_factory=dict)
