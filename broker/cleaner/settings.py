"""The settings of the built-in cleaner: the `log.cleaner.*` keys that are not a topic's."""

from dataclasses import dataclass

from logyard.broker.compaction.dirty_keys import BYTES_PER_KEY
from logyard.broker.config.broker import BrokerConfig

KEYS_MIN = 1000


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Each of `threads` is a process of its own; they share `dedupe_buffer_bytes` and `bytes_per_second`."""

    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    bytes_per_second: float = 1e308

    @property
    def keys_max(self) -> int:
        """The keys that one process may keep in memory: its share of log.cleaner.dedupe.buffer.size."""
        return max(KEYS_MIN, self.dedupe_buffer_bytes // max(self.threads, 1) // BYTES_PER_KEY)

    @property
    def bytes_per_second_each(self) -> float:
        return max(1.0, self.bytes_per_second / max(self.threads, 1))


def settings_from(config: BrokerConfig) -> CleanerSettings:
    """Return the cleaner's settings in a broker's configuration."""
    return CleanerSettings(
        threads=config.int("log.cleaner.threads"),
        backoff_ms=config.int("log.cleaner.backoff.ms"),
        dedupe_buffer_bytes=config.int("log.cleaner.dedupe.buffer.size"),
        bytes_per_second=config.float("log.cleaner.io.max.bytes.per.second"),
    )
