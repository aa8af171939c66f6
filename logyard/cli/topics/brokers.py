"""Topics through the brokers' admin API: what `--bootstrap-server` means."""

from collections.abc import Mapping, Sequence

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.presence import told
from logyard.admin.cluster.snapshot import ConfigValue, NewTopic, TopicView
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import Assignment, TopicPartition
from logyard.cli.topics.text import PartitionLine, TopicLines


class BrokerTopics:
    """Reads and changes topics by requests. Methods raise ApiError if the brokers refuse, or ClusterUnreachable."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._client = KafkaClusterClient(settings)

    def close(self) -> None:
        self._client.close()

    def names(self) -> list[str]:
        return sorted(self._client.snapshot().topics)

    def live(self) -> list[int]:
        return sorted(self._client.snapshot([]).brokers)

    def lines(self, names: Sequence[str]) -> list[TopicLines]:
        snapshot = self._client.snapshot(list(names), reassignments=True)
        moving = snapshot.reassignments or {}
        known = [snapshot.topics[name] for name in names if name in snapshot.topics]
        return [topic_lines(view, self._client.topic_configs(view.name), moving) for view in known]

    def create(self, topic: NewTopic, *, if_not_exists: bool) -> list[str]:
        try:
            self._client.create_topic(topic)
        except ApiError as refusal:
            if if_not_exists and refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return []
            raise
        return [f"Created topic {topic.name}."]

    def add_partitions(self, name: str, total: int, assignment: Mapping[int, Sequence[int]] | None) -> list[str]:
        added: list[Sequence[int]] | None = None
        if assignment is not None:
            found = told(self._client, [name]).topics.get(name)
            if found is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")
            placed = sorted(assignment.items())
            added = [replicas for partition, replicas in placed if partition >= len(found.partitions)]
        self._client.add_partitions(name, total, added)
        return []

    def alter_configs(self, name: str, values: Mapping[str, str], delete: Sequence[str]) -> list[str]:
        self._client.alter_topic_configs(name, values, delete)
        return []

    def delete(self, name: str) -> list[str]:
        self._client.delete_topic(name)
        return []


def topic_lines(
    view: TopicView, configs: Mapping[str, ConfigValue], moving: Mapping[TopicPartition, Assignment]
) -> TopicLines:
    """One topic of a snapshot as shown, with its settings from all sources except Kafka's defaults."""
    min_isr = configs.get("min.insync.replicas")
    partitions = []
    for p in view.partitions:
        move = moving.get(TopicPartition(view.name, p.partition))
        adding, removing = (move.adding, move.removing) if move is not None else (None, None)
        partitions.append(PartitionLine(p.partition, p.leader, p.replicas, p.isr, adding, removing))
    return TopicLines(
        name=view.name,
        partitions=partitions,
        configs={key: c.value or "" for key, c in configs.items() if c.source != "DEFAULT_CONFIG"},
        topic_id=view.topic_id,
        min_isr=int(min_isr.value) if min_isr is not None and min_isr.value else 1,
    )
