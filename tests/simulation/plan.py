"""The properties of one seed, before anything happens: how many faults, which protocol level, which promises."""

import random
from dataclasses import dataclass
from typing import Any

# inter.broker.protocol.version: what each brings is told apart in broker/components.py and replication/settings.py.
LEVELS = ("2.5", "2.7", "2.8", "3.1", "3.3")


@dataclass(frozen=True)
class Plan:
    """`synced`: every message is flushed. `beyond`: power goes anywhere at any time, and records may be lost.

    `hasty`, `ends_held`: how transactional clients end their transactions (tellers.py). `transaction_version`: which
    level of that feature is finalized, 0 for none.
    """

    level: str | None
    synced: bool
    beyond: bool
    fault_chance: float
    change_chance: float
    fetch_bytes: int
    hasty: bool = False
    ends_held: float = 0.0
    transaction_version: int = 0

    @property
    def has_topic_ids(self) -> bool:
        return self.level not in ("2.5", "2.7")

    @property
    def leaders_write_isr(self) -> bool:
        """Below 2.7-IV2 there is no AlterPartition."""
        return self.level == "2.5"

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"replica_fetch_max_bytes": str(self.fetch_bytes)}
        if self.synced:
            found["log_flush_interval_messages"] = "1"
        if self.level is not None:
            found["inter_broker_protocol_version"] = self.level
        return found


def plan(seed: int, *, beyond: bool = False, transaction_version: int = 0) -> Plan:
    """Draw the seed's plan: mostly at the newest level, mostly flushed by the clock, sometimes very rough."""
    chance = random.Random(f"{seed} plan")
    level = chance.choice(LEVELS) if chance.random() < 0.3 else None
    synced = not beyond and chance.random() < 0.15
    fault_chance, change_chance = chance.choice((0.03, 0.07, 0.07, 0.15)), chance.choice((0.03, 0.06, 0.1))
    # Sometimes small, so that a follower's look-ups end within a segment, too.
    fetch_bytes = chance.choice((600, 1 << 20, 1 << 20))
    if transaction_version and level == "2.5":
        level = None  # below 2.7 a cluster has no features
    return Plan(
        level, synced, beyond, fault_chance, change_chance, fetch_bytes, transaction_version=transaction_version
    )
