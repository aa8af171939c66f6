"""The settings of several topics, or of several brokers, side by side; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from logyard.admin.cluster.snapshot import ConfigValue

# Settings that are a broker's own: that they differ says nothing.
OWN = frozenset(
    (
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "control.plane.listener.name",
        "host.name",
        "http.listener",
        "http.port",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "port",
    )
)


def compared(configs: Sequence[Mapping[str, ConfigValue] | None]) -> list[dict[str, Any]]:
    """One row for each setting: those that differ first, then those that somebody has set, then the rest, by name.

    None in place of the settings: they are not known. A setting that one resource does not have is null there, and
    differs. A sensitive value is never shown, and not compared.
    """
    known = [values for values in configs if values is not None]
    names = sorted({name for values in known for name in values})
    return sorted((_row(name, configs) for name in names), key=_order)


def _row(name: str, configs: Sequence[Mapping[str, ConfigValue] | None]) -> dict[str, Any]:
    entries = [None if values is None else values.get(name) for values in configs]
    there = [entry for entry in entries if entry is not None]
    sensitive = any(entry.sensitive for entry in there)
    told = [
        entry.value if entry is not None else None
        for entry, values in zip(entries, configs, strict=True)
        if values is not None
    ]
    lacking = len(there) < len(told)
    return {
        "name": name,
        "values": [None if entry is None or sensitive else entry.value for entry in entries],
        "sources": [None if entry is None else entry.source for entry in entries],
        "default": None if sensitive else next((e.default for e in there if e.default is not None), None),
        "differs": not sensitive and (lacking or len(set(told)) > 1),
        "own": name in OWN,
        "set": any(entry.source != "DEFAULT_CONFIG" for entry in there),
        "sensitive": sensitive,
    }


def _order(row: Mapping[str, Any]) -> tuple[bool, bool, bool, str]:
    differs = bool(row["differs"]) and not row["own"]
    return not differs, not row["differs"], not row["set"], str(row["name"])
