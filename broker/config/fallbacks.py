"""Keys with several units, and keys that fall back to another key (facts §20)."""

from collections.abc import Mapping

from logyard.broker.config.key_types import ConfigValue

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


def resolve(values: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Return every key's effective value; a key is None here only if neither it nor a fallback is set."""
    done = dict(values)
    done["log.retention.ms"] = _retention_ms(values)
    done["log.roll.ms"] = _first(values["log.roll.ms"], _times(values["log.roll.hours"], _HOUR_MS))
    done["log.roll.jitter.ms"] = _first(values["log.roll.jitter.ms"], _times(values["log.roll.jitter.hours"], _HOUR_MS))
    done["log.flush.interval.ms"] = _first(values["log.flush.interval.ms"], values["log.flush.scheduler.interval.ms"])
    done["log.dirs"] = _first(values["log.dirs"], values["log.dir"])
    done["broker.id"] = (
        values["node.id"] if values["broker.id"] == -1 and values["node.id"] is not None else values["broker.id"]
    )
    done["zookeeper.connection.timeout.ms"] = _first(
        values["zookeeper.connection.timeout.ms"], values["zookeeper.session.timeout.ms"]
    )
    return done


def _retention_ms(values: Mapping[str, ConfigValue]) -> ConfigValue:
    ms = _first(
        values["log.retention.ms"],
        _times(values["log.retention.minutes"], _MINUTE_MS),
        _times(values["log.retention.hours"], _HOUR_MS),
    )
    # Any negative number means for ever.
    return -1 if isinstance(ms, int) and ms < 0 else ms


def _first(*values: ConfigValue) -> ConfigValue:
    return next((value for value in values if value is not None), None)


def _times(value: ConfigValue, unit: int) -> ConfigValue:
    return value * unit if isinstance(value, int) else None
