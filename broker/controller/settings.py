"""The broker's settings that the controller uses, and the meaning of its protocol level."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from logyard.broker.config.broker import BrokerConfig, validate_topic_overrides
from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol as Ibp
from logyard.broker.controller.policies import NO_POLICIES, Policies, TopicRequest


@dataclass(frozen=True, slots=True)
class ProtocolLevel:
    """What inter.broker.protocol.version decides for the controller (facts §4, §22). The default is 3.9."""

    leader_and_isr_version: int = 7
    update_metadata_version: int = 8
    stop_replica_version: int = 4
    topic_ids: bool = True
    """2.8: topic znodes are version 3 and carry an id."""
    alter_partition: bool = True
    """2.7-IV2: leaders change their ISR through the controller, so state znodes are not watched."""
    features: bool = True
    """2.7-IV0: /feature is enabled and UpdateFeatures is served."""
    feature_version: int = 2
    """3.3: /feature is written without minimum levels."""
    recovery_state: bool = True
    """3.2: an unclean leader is marked RECOVERING."""


# The lowest level for each set of versions of LeaderAndIsr, UpdateMetadata and StopReplica, the highest first: Kafka
# 3.9's table (ControllerChannelManager.scala). Before version 2, 5 and 1 partitions are not grouped by topic.
_VERSIONS: tuple[tuple[Ibp, tuple[int, int, int]], ...] = (
    (Ibp.IBP_3_4_IV0, (7, 8, 4)),
    (Ibp.IBP_3_2_IV0, (6, 7, 3)),
    (Ibp.IBP_2_8_IV1, (5, 7, 3)),
    (Ibp.IBP_2_6_IV0, (4, 6, 3)),
    (Ibp.IBP_2_4_IV1, (4, 6, 2)),
    (Ibp.IBP_2_4_IV0, (3, 5, 1)),
    (Ibp.IBP_2_2_IV0, (2, 5, 1)),
    (Ibp.IBP_1_0_IV0, (1, 4, 0)),
    (Ibp.IBP_0_10_2_IV0, (0, 3, 0)),
    (Ibp.IBP_0_10_0_IV1, (0, 2, 0)),
    (Ibp.IBP_0_9_0, (0, 1, 0)),
    (Ibp.IBP_0_8_0, (0, 0, 0)),
)


def protocol_level(ibp: Ibp) -> ProtocolLevel:
    """Return the properties of a protocol level."""
    versions = next(versions for level, versions in _VERSIONS if ibp >= level)
    return ProtocolLevel(
        *versions,
        topic_ids=ibp >= Ibp.IBP_2_8_IV0,
        alter_partition=ibp >= Ibp.IBP_2_7_IV2,
        features=ibp >= Ibp.IBP_2_7_IV0,
        feature_version=2 if ibp >= Ibp.IBP_3_3_IV0 else 1,
        recovery_state=ibp >= Ibp.IBP_3_2_IV0,
    )


LEVEL_3_9 = ProtocolLevel()
LEVEL_2_5 = ProtocolLevel(
    leader_and_isr_version=4,
    update_metadata_version=6,
    stop_replica_version=2,
    topic_ids=False,
    alter_partition=False,
    features=False,
    feature_version=1,
    recovery_state=False,
)


def accept_any_overrides(overrides: Mapping[str, str]) -> None:
    """Accept all topic configs; stands in for the real check in tests."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings that the controller uses; replaced as a whole when they change."""

    broker_id: int
    num_partitions: int = 1
    default_replication_factor: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_s: float = 300.0
    leader_imbalance_per_broker_percentage: int = 10
    first_leader_imbalance_check_s: float = 5.0
    level: ProtocolLevel = LEVEL_3_9
    validate_topic_overrides: Callable[[Mapping[str, str]], None] = accept_any_overrides
    """Raises ApiError(INVALID_CONFIG) for a key or value that topics do not have."""
    create_policy: Callable[[TopicRequest], None] | None = None
    """create.topic.policy.class.name: raises ApiError(POLICY_VIOLATION) to refuse."""


def settings_from(config: BrokerConfig, policies: Policies = NO_POLICIES) -> ControllerSettings:
    """Return the controller's settings from the broker's configuration (dynamic overrides included)."""
    return ControllerSettings(
        broker_id=config.broker_id,
        num_partitions=config.int("num.partitions"),
        default_replication_factor=config.int("default.replication.factor"),
        unclean_leader_election_enable=config.bool("unclean.leader.election.enable"),
        delete_topic_enable=config.bool("delete.topic.enable"),
        auto_leader_rebalance_enable=config.bool("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval_s=float(config.int("leader.imbalance.check.interval.seconds")),
        leader_imbalance_per_broker_percentage=config.int("leader.imbalance.per.broker.percentage"),
        level=protocol_level(config.ibp),
        validate_topic_overrides=validate_topic_overrides,
        create_policy=policies.create_topic,
    )
