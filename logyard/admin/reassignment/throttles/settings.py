"""The settings that throttle replication: their names, what moves need of them, and when brokers know them.

Topics have lists of the replicas that move, and brokers have rates (facts §6). Only `book.py` sets and ends them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.ports import Pause
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.throttles.records import BROKER, TOPIC, ThrottleSetting

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC_THROTTLES = (LEADERS, FOLLOWERS)
BROKER_THROTTLES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)

_PATIENCE_S = 5.0


class ConfigClient(Protocol):
    """The calls that are needed; `ports.ClusterClient` has them all."""

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]: ...

    def alter_topic_configs(self, topic: str, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]: ...

    def alter_broker_configs(self, broker: int, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...


def throttle_settings(moves: Iterable[Move], rate: int) -> dict[ThrottleSetting, str]:
    """Return the settings of a throttle of these moves, as kafka-reassign-partitions sets them.

    The topics' lists name every broker that has a replica now on the leaders' side, and those that get one on the
    followers' side. They come first: a broker that knows its rate then knows the lists.
    """
    lists: dict[tuple[str, str], set[str]] = {}
    brokers: set[int] = set()
    for move in moves:
        for key, listed in ((LEADERS, move.replicas), (FOLLOWERS, move.adding)):
            if listed:
                lists.setdefault((move.tp.topic, key), set()).update(
                    f"{move.tp.partition}:{broker}" for broker in listed
                )
        brokers.update(move.replicas, move.adding)
    found = {
        # Sorted as text, as Kafka's TreeSet of strings is.
        ThrottleSetting(TOPIC, topic, key): ",".join(sorted(listed))
        for (topic, key), listed in lists.items()
    }
    for broker in sorted(brokers):
        found |= {ThrottleSetting(BROKER, str(broker), key): str(rate) for key in (LEADER_RATE, FOLLOWER_RATE)}
    return found


def await_rates(client: ConfigClient, settings: Mapping[ThrottleSetting, str], pause: Pause) -> None:
    """Wait until each broker reports its rates, for five seconds at most.

    A broker learns of a setting a moment after it is written, in the order of the writes: once it knows its rate, it
    knows the lists of topics written before, and a move that starts then is throttled from its first byte on.
    """
    rates: dict[int, dict[str, str | None]] = {}
    for setting, value in settings.items():
        if setting.key in (LEADER_RATE, FOLLOWER_RATE):
            rates.setdefault(int(setting.name), {})[setting.key] = value
    deadline = pause.monotonic() + _PATIENCE_S
    unsure = sorted(rates)
    while unsure and pause.monotonic() < deadline:
        unsure = [b for b in unsure if own_values(client.broker_configs(b), list(rates[b])) != rates[b]]
        if unsure:
            pause.sleep(0.02)


def own_values(configs: Mapping[str, ConfigValue], keys: Sequence[str]) -> dict[str, str | None]:
    """The values set on this resource for those keys; None if the value is inherited, a default or empty."""
    return {k: configs[k].value or None if k in configs and configs[k].is_override else None for k in keys}
