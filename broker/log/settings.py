"""The settings of the log store, named almost as in the broker's configuration, with Kafka's defaults."""

from dataclasses import dataclass

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.topic import LONG_MAX

FILES_SPARED = 1024


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Times are in ms. `partitions_max` is what the limit of open files allows: one file each, with a reserve."""

    log_dirs: tuple[str, ...]
    recovery_threads_per_dir: int = 1
    initial_task_delay_ms: int = 30_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = LONG_MAX
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    partitions_max: int = 1 << 31
    validate_records: bool = False
    verify_transactions: bool = False


def settings_from(config: BrokerConfig, open_files_max: int) -> StoreSettings:
    """Return the store's settings from the broker's configuration and the limit of open files."""
    return StoreSettings(
        config.log_dirs,
        recovery_threads_per_dir=config.int("num.recovery.threads.per.data.dir"),
        initial_task_delay_ms=config.int("log.initial.task.delay.ms"),
        retention_check_interval_ms=config.int("log.retention.check.interval.ms"),
        flush_scheduler_interval_ms=config.int("log.flush.scheduler.interval.ms"),
        recovery_point_checkpoint_interval_ms=config.int("log.flush.offset.checkpoint.interval.ms"),
        log_start_checkpoint_interval_ms=config.int("log.flush.start.offset.checkpoint.interval.ms"),
        high_watermark_checkpoint_interval_ms=config.int("replica.high.watermark.checkpoint.interval.ms"),
        producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
        producer_id_expiration_check_interval_ms=config.int("producer.id.expiration.check.interval.ms"),
        validate_records=config.bool("logyard.validate.records"),
        verify_transactions=config.bool("transaction.partition.verification.enable"),
        # Each log keeps one file open; the others are for connections, sealed segments and jobs.
        partitions_max=max(16, open_files_max - FILES_SPARED),
    )
