"""What this broker knows of the cluster: live brokers, every partition's leader, topic ids, the controller.

Rule 1: only UpdateMetadata writes it, one request at a time, on the event loop; everything else reads.
Rule 2: each update replaces the brokers as a whole and merges the partitions; leader -2 removes one (facts §9).
Rule 3: `version` grows with every update, so that encoded answers can be cached until then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from logyard.broker import tasks
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import LEADER_DURING_DELETE, NO_LEADER, ZERO_TOPIC_ID, BrokerInfo, TopicId, TopicPartition


class PartitionMetadata(NamedTuple):
    """One partition as the controller last sent it; `partition_epoch` is its state znode's version."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    offline: tuple[int, ...] = ()
    partition_epoch: int = 0


Subscriber = Callable[[Sequence[str], Sequence[TopicPartition]], None]


class MetadataCache:
    """The cluster's metadata, by the rules at the head of this file."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.controller_id = NO_LEADER
        self.controller_epoch = -1
        self.version = 0
        self._topics: dict[str, dict[int, PartitionMetadata]] = {}
        self._ids: dict[str, TopicId] = {}
        self._names: dict[TopicId, str] = {}
        self._subscribers: list[Subscriber] = []

    def apply_update(self, update: UpdateMetadata) -> Sequence[TopicPartition]:
        """Apply the controller's update and notify the subscribers; returns the partitions that were deleted.

        The caller checks the epochs of controller and broker (`ControllerRequests.update_metadata`).
        """
        self.version += 1
        self.controller_id = update.controller_id
        self.controller_epoch = update.controller_epoch
        self.brokers = {broker.id: broker for broker in update.brokers}
        changed: dict[str, None] = {}
        deleted: list[TopicPartition] = []
        for partition in update.partitions:
            changed[partition.tp.topic] = None
            if partition.leader == LEADER_DURING_DELETE:
                self._remove(partition.tp, deleted)
            else:
                self._put(partition)
        for topic in changed:
            self._set_id(topic, update.topic_ids.get(topic, ZERO_TOPIC_ID))
        news = tuple(changed)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(news, deleted)
            except Exception as error:
                # An error of one must not keep it from the others: nobody tells them again.
                tasks.failed("news of metadata", error)
        return deleted

    def _put(self, update: PartitionUpdate) -> None:
        topic, number = update.tp
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = {}
        known[number] = PartitionMetadata(
            update.replicas, update.isr, update.leader, update.leader_epoch, update.offline, update.partition_epoch
        )

    def _remove(self, tp: TopicPartition, deleted: list[TopicPartition]) -> None:
        partitions = self._topics.get(tp.topic)
        if partitions is None or partitions.pop(tp.partition, None) is None:
            return
        deleted.append(tp)
        if not partitions:
            del self._topics[tp.topic]

    def _set_id(self, topic: str, topic_id: TopicId) -> None:
        """Set a topic's id; a zero id removes it (facts §9). A deleted topic's id is removed too."""
        known = self._ids.get(topic)
        wanted = topic_id if topic_id != ZERO_TOPIC_ID and topic in self._topics else None
        if known == wanted:
            return
        if known is not None:
            del self._ids[topic]
            del self._names[known]
        if wanted is not None:
            self._ids[topic] = wanted
            self._names[wanted] = topic

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(changed topics, deleted partitions)` after each update."""
        self._subscribers.append(subscriber)

    # Reading

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker was live in the controller's last update."""
        return broker_id in self.brokers

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return a partition's metadata, None if there is none."""
        partitions = self._topics.get(tp[0])
        return partitions.get(tp[1]) if partitions is not None else None

    def partitions(self, topic: str) -> Mapping[int, PartitionMetadata]:
        """Return a topic's partitions by number, empty for an unknown topic."""
        return self._topics.get(topic, {})

    def topics(self) -> Iterable[str]:
        """Return the names of all topics, in the order in which they became known."""
        return self._topics.keys()

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def partition_count(self) -> int:
        """Return how many partitions there are in all topics."""
        return sum(map(len, self._topics.values()))

    def topic_id(self, topic: str) -> TopicId | None:
        """Return a topic's id, None if it has none or is unknown."""
        return self._ids.get(topic)

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic with that id."""
        return self._names.get(topic_id)

    def topic_names(self) -> Mapping[TopicId, str]:
        """Return the topic names by id: a live view."""
        return self._names
