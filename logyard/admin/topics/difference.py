"""How a topic differs from the wanted one, as lines for people: `-` is the current, `+` the wanted state. Pure."""

from collections.abc import Mapping

from logyard.admin.cluster.snapshot import ConfigValue, NewTopic, TopicView
from logyard.admin.topics.changes import TopicChanges


def difference_lines(
    changes: TopicChanges, found: TopicView | None, configs: Mapping[str, ConfigValue] | None = None
) -> list[str]:
    """One line for each difference, without sensitive values. Empty if there is none."""
    if changes.create is not None:
        return [f"+ {line}" for line in _wanted(changes.create)]
    there = configs or {}
    lines = []
    if changes.add_partitions_to is not None:
        before = len(found.partitions) if found else "?"
        lines.append(f"~ partitions: - {before} + {changes.add_partitions_to}")
    for key, value in sorted(changes.set_configs.items()):
        lines.append(f"~ {key}: - {_shown(there.get(key))} + {_hidden(there.get(key), value)}")
    lines += [f"- {key}: {_shown(there.get(key))}" for key in changes.delete_configs]
    lines += [f"! {refused}" for refused in changes.refused]
    return lines


def _wanted(topic: NewTopic) -> list[str]:
    if topic.assignment:
        placed = [f"partition {number}: {list(replicas)}" for number, replicas in sorted(topic.assignment.items())]
    else:
        counts = (("partitions", topic.partitions), ("replication factor", topic.replication_factor))
        placed = [f"{name}: {count if count > 0 else 'the default'}" for name, count in counts]
    return [*placed, *(f"{key}: {value}" for key, value in sorted(topic.configs.items()))]


def _shown(value: ConfigValue | None) -> str:
    if value is None or value.value is None:
        return "(unset)"
    text = "(hidden)" if value.sensitive else value.value
    return text if value.is_override else f"{text} (inherited)"


def _hidden(value: ConfigValue | None, wanted: str) -> str:
    return "(hidden)" if value is not None and value.sensitive else wanted
