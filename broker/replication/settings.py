"""Replication's settings and counters, as plain typed fields."""

from dataclasses import dataclass

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol
from logyard.broker.replication.throttle import UNLIMITED

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(slots=True)
class ReplicaSettings:
    """Kafka's `replica.*` keys (defaults of 3.9); times in milliseconds, sizes in bytes."""

    broker_id: int
    lag_time_max_ms: int = 30_000
    fetch_wait_max_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 1_048_576
    fetch_response_max_bytes: int = 10_485_760
    fetch_backoff_ms: int = 1_000
    fetch_session_slots_max: int = 1_000
    fetch_session_eviction_ms: int = 120_000
    truncates_on_fetch: bool = True  # IBP >= 2.7-IV1; else OffsetForLeaderEpoch is asked first
    uses_topic_ids: bool = True  # IBP >= 3.1-IV0: Fetch v13+ where every partition has an id
    leader_throttled_rate: int = UNLIMITED  # bytes/s; dynamic, changed in place
    follower_throttled_rate: int = UNLIMITED
    alter_log_dirs_rate: int = UNLIMITED
    alter_log_dirs_windows: int = 11
    alter_log_dirs_window_ms: int = 1_000
    throttle_windows: int = 11
    throttle_window_ms: int = 1_000
    transaction_timeout_max_ms: int = 900_000
    rack_aware_reads: bool = False  # replica.selector.class names Kafka's RackAwareReplicaSelector

    def take_over(self, config: BrokerConfig) -> None:
        """Take over the settings that may change while the broker runs."""
        self.leader_throttled_rate = config.int("leader.replication.throttled.rate")
        self.follower_throttled_rate = config.int("follower.replication.throttled.rate")
        self.alter_log_dirs_rate = config.int("replica.alter.log.dirs.io.max.bytes.per.second")


@dataclass(slots=True)
class Counters:
    """Totals since start."""

    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    messages_in: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0
    cold_reads: int = 0


def settings_from(config: BrokerConfig) -> ReplicaSettings:
    """Return replication's settings from the broker's configuration."""
    settings = ReplicaSettings(
        broker_id=config.broker_id,
        lag_time_max_ms=config.int("replica.lag.time.max.ms"),
        fetch_wait_max_ms=config.int("replica.fetch.wait.max.ms"),
        fetch_min_bytes=config.int("replica.fetch.min.bytes"),
        fetch_max_bytes=config.int("replica.fetch.max.bytes"),
        fetch_response_max_bytes=config.int("replica.fetch.response.max.bytes"),
        fetch_backoff_ms=config.int("replica.fetch.backoff.ms"),
        fetch_session_slots_max=config.int("max.incremental.fetch.session.cache.slots"),
        truncates_on_fetch=config.ibp >= InterBrokerProtocol.IBP_2_7_IV1,
        uses_topic_ids=config.ibp >= InterBrokerProtocol.IBP_3_1_IV0,
        alter_log_dirs_windows=config.int("alter.log.dirs.replication.quota.window.num"),
        alter_log_dirs_window_ms=config.int("alter.log.dirs.replication.quota.window.size.seconds") * 1000,
        throttle_windows=config.int("replication.quota.window.num"),
        throttle_window_ms=config.int("replication.quota.window.size.seconds") * 1000,
        transaction_timeout_max_ms=config.int("transaction.max.timeout.ms"),
        rack_aware_reads=config.optional_str("replica.selector.class") == RACK_AWARE,
    )
    settings.take_over(config)
    return settings
