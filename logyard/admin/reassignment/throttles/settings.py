"""Replication throttles of a reassignment: the settings, what moves need of them, and how they are set at once.

Topic lists name the partitions that move, broker rates hold for the brokers they move between (facts §6). Runs share
them by `book.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.ports import Pause
from logyard.admin.reassignment.execution import Move
from logyard.broker.errors import ApiError, ErrorCode

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class ConfigClient(Protocol):
    """The calls that are needed; `ports.ClusterClient` has them all."""

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]: ...

    def alter_topic_configs(self, topic: str, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]: ...

    def alter_broker_configs(self, broker: int, values: Mapping[str, str], delete: Sequence[str] = ()) -> None: ...


@dataclass(frozen=True, slots=True)
class Throttle:
    """What was there before: topic → key → value and broker → key → value, None where nothing was set."""

    topics: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    brokers: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)


def throttled_replicas(moves: Sequence[Move]) -> dict[str, dict[str, list[str]]]:
    """Topic → key → entries `partition:broker`: sources on the leaders' list, destinations on the followers'."""
    lists: dict[str, dict[str, list[str]]] = {}
    for move in moves:
        if move.adding:
            entry = lists.setdefault(move.tp.topic, {LEADERS: [], FOLLOWERS: []})
            entry[LEADERS] += [f"{move.tp.partition}:{broker}" for broker in move.replicas]
            entry[FOLLOWERS] += [f"{move.tp.partition}:{broker}" for broker in move.adding]
    return lists


def throttled_brokers(moves: Sequence[Move]) -> list[int]:
    """The brokers that replicas move between."""
    return sorted({b for move in moves if move.adding for b in (*move.replicas, *move.adding)})


def capture(client: ConfigClient, topics: Iterable[str], brokers: Iterable[int]) -> Throttle:
    """What is set now, for `restore`."""
    return Throttle(
        topics={topic: own_values(client.topic_configs(topic), (LEADERS, FOLLOWERS)) for topic in topics},
        brokers={b: own_values(client.broker_configs(b), (LEADER_RATE, FOLLOWER_RATE)) for b in brokers},
    )


def set_rates(client: ConfigClient, brokers: Sequence[int], rate: int, pause: Pause) -> None:
    """Set the brokers' rates, then wait until each says that it holds them."""
    for broker in brokers:
        client.alter_broker_configs(broker, {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)})
    await_rates(client, brokers, rate, pause)


def await_rates(client: ConfigClient, brokers: Sequence[int], rate: int, pause: Pause, patience_s: float = 5.0) -> None:
    """Wait until each broker says that it holds its rate, for `patience_s` at most.

    A broker learns of a setting a moment after it is written, in the order of the writes: once it knows its rate, it
    knows the lists of topics written before, and a move that starts then is throttled from its first byte on.
    """
    rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    deadline = pause.monotonic() + patience_s
    unsure = list(brokers)
    while unsure and pause.monotonic() < deadline:
        unsure = [broker for broker in unsure if own_values(client.broker_configs(broker), tuple(rates)) != rates]
        if unsure:
            pause.sleep(0.02)


def restore(client: ConfigClient, before: Throttle) -> None:
    """Put back what was there; topics that have vanished since are left out, what else fails is raised at the end."""
    problem: ApiError | None = None
    for topic, values in before.topics.items():
        try:
            client.alter_topic_configs(topic, *_back(values))
        except ApiError as refusal:
            if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                problem = refusal
    for broker, values in before.brokers.items():
        try:
            client.alter_broker_configs(broker, *_back(values))
        except ApiError as refusal:
            problem = refusal
    if problem is not None:
        raise problem


def own_values(configs: Mapping[str, ConfigValue], keys: Sequence[str]) -> dict[str, str | None]:
    """What is set here for those keys; None where the value comes from elsewhere, or is empty."""
    return {k: configs[k].value or None if k in configs and configs[k].is_override else None for k in keys}


def _back(values: Mapping[str, str | None]) -> tuple[dict[str, str], list[str]]:
    return {k: v for k, v in values.items() if v is not None}, [k for k, v in values.items() if v is None]
