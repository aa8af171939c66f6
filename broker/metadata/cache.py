"""What this broker knows of the cluster: live brokers, every partition's leader, topic ids, the controller.

Rule 1: only UpdateMetadata writes it, one request at a time, on the event loop; everything else reads.
Rule 2: each update replaces the brokers as a whole and merges the partitions; leader -2 removes one (facts §9).
Rule 3: `version` grows with every update, so that encoded answers can be cached until then.
Rule 4: readers see each update as a whole. A large one is made beside what they read (large_update.py), and then put
        in its place at once.
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


class KnownTopics:
    """The partitions of each topic, and topic ids both ways."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[int, PartitionMetadata]] = {}
        self.ids: dict[str, TopicId] = {}
        self.names: dict[TopicId, str] = {}
        self._shared: Mapping[str, dict[int, PartitionMetadata]] = {}

    def copy(self) -> "KnownTopics":
        """Return a copy, which shares each topic's partitions with this one until it changes them."""
        made = KnownTopics()
        made._shared, made.partitions = self.partitions, self.partitions.copy()
        made.ids, made.names = self.ids.copy(), self.names.copy()
        return made

    def share_nothing(self) -> None:
        """What this was copied of is not read any more: the partitions of each topic are its own."""
        self._shared = {}

    def merge(
        self, updates: Iterable[PartitionUpdate], changed: dict[str, None], deleted: list[TopicPartition]
    ) -> None:
        """Merge partitions, and add the topics and the deleted partitions to what is told of the update."""
        for update in updates:
            changed[update.tp.topic] = None
            if update.leader == LEADER_DURING_DELETE:
                self._remove(update.tp, deleted)
            else:
                self._put(update)

    def _put(self, update: PartitionUpdate) -> None:
        topic, number = update.tp
        known = self.partitions.get(topic)
        if known is None:
            known = self.partitions[topic] = {}
        elif known is self._shared.get(topic):
            known = self.partitions[topic] = known.copy()
        known[number] = PartitionMetadata(
            update.replicas, update.isr, update.leader, update.leader_epoch, update.offline, update.partition_epoch
        )

    def _remove(self, tp: TopicPartition, deleted: list[TopicPartition]) -> None:
        known = self.partitions.get(tp.topic)
        if known is None or tp.partition not in known:
            return
        if known is self._shared.get(tp.topic):
            known = self.partitions[tp.topic] = known.copy()
        del known[tp.partition]
        deleted.append(tp)
        if not known:
            del self.partitions[tp.topic]

    def identify(self, topics: Iterable[str], topic_ids: Mapping[str, TopicId]) -> None:
        """Set the topics' ids; one that is missing or zero removes it (facts §9), and so does the topic's deletion."""
        for topic in topics:
            self._set_id(topic, topic_ids.get(topic, ZERO_TOPIC_ID))

    def _set_id(self, topic: str, topic_id: TopicId) -> None:
        known = self.ids.get(topic)
        wanted = topic_id if topic_id != ZERO_TOPIC_ID and topic in self.partitions else None
        if known == wanted:
            return
        if known is not None:
            del self.ids[topic]
            del self.names[known]
        if wanted is not None:
            self.ids[topic] = wanted
            self.names[wanted] = topic


class MetadataCache:
    """The cluster's metadata, by the rules at the head of this file."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.controller_id = NO_LEADER
        self.controller_epoch = -1
        self.version = 0
        self.known = KnownTopics()
        self._subscribers: list[Subscriber] = []

    def apply_update(self, update: UpdateMetadata) -> Sequence[TopicPartition]:
        """Apply the controller's update and notify the subscribers; returns the partitions that were deleted.

        The caller checks the epochs of controller and broker (`ControllerRequests.update_metadata`).
        """
        changed: dict[str, None] = {}
        deleted: list[TopicPartition] = []
        self.known.merge(update.partitions, changed, deleted)
        self.known.identify(changed, update.topic_ids)
        self.put_in_place(update, self.known, changed, deleted)
        return deleted

    def put_in_place(
        self,
        update: UpdateMetadata,
        known: KnownTopics,
        changed: Iterable[str],
        deleted: Sequence[TopicPartition],
    ) -> None:
        """Show what an update makes of the topics, with its brokers and epoch, and notify the subscribers."""
        self.version += 1
        self.controller_id = update.controller_id
        self.controller_epoch = update.controller_epoch
        self.brokers = {broker.id: broker for broker in update.brokers}
        known.share_nothing()
        self.known = known
        topics = tuple(changed)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(topics, deleted)
            except Exception as error:
                # An error of one must not keep it from the others: nobody tells them again.
                tasks.failed("news of metadata", error)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(changed topics, deleted partitions)` after each update."""
        self._subscribers.append(subscriber)

    # Reading

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker was live in the controller's last update."""
        return broker_id in self.brokers

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return a partition's metadata, None if there is none."""
        partitions = self.known.partitions.get(tp[0])
        return partitions.get(tp[1]) if partitions is not None else None

    def partitions(self, topic: str) -> Mapping[int, PartitionMetadata]:
        """Return a topic's partitions by number, empty for an unknown topic."""
        return self.known.partitions.get(topic, {})

    def topics(self) -> Iterable[str]:
        """Return the names of all topics, in the order in which they became known."""
        return self.known.partitions.keys()

    def __contains__(self, topic: str) -> bool:
        return topic in self.known.partitions

    def partition_count(self) -> int:
        """Return how many partitions there are in all topics."""
        return sum(map(len, self.known.partitions.values()))

    def topic_id(self, topic: str) -> TopicId | None:
        """Return a topic's id, None if it has none or is unknown."""
        return self.known.ids.get(topic)

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic with that id."""
        return self.known.names.get(topic_id)
