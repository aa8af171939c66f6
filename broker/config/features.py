"""The features of KIP-584 that a broker of ours supports: levels of its own protocol that a whole cluster agrees on.

A broker of Apache Kafka in ZooKeeper mode supports none, and stops when one is finalized (facts §22). So a feature can
only be finalized where every live broker is one of ours.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from logyard.broker.model import LevelRange

TRANSACTION_VERSION: Final = "transaction.version"

SUPPORTED: Final[Mapping[str, LevelRange]] = MappingProxyType({TRANSACTION_VERSION: LevelRange(1, 2)})
"""By name. `transaction.version` 2 is KIP-890, part 2: a new epoch for each transaction. Level 1 only allows the newer
form of records in `__transaction_state`."""
