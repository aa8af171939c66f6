"""The features (KIP-584) that our brokers support, with their levels; a finalized level is used by the whole cluster.

Brokers of Apache Kafka in ZooKeeper mode support none, and stop if one is finalized (facts §22). So a feature can only
be finalized if all live brokers are ours.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from logyard.broker.model import LevelRange

TRANSACTION_VERSION: Final = "transaction.version"

SUPPORTED: Final[Mapping[str, LevelRange]] = MappingProxyType({TRANSACTION_VERSION: LevelRange(1, 2)})
"""Levels by name. `transaction.version` 1 allows the flexible records of `__transaction_state`; 2 gives each
transaction a new epoch (KIP-890, part 2)."""
