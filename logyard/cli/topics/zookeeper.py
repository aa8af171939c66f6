"""Topics by writing znodes: what `--zookeeper` meant before Kafka 3.0, and what every broker still understands.

The controller finds what is written here by its watches. Order of a creation: /config/topics/T first, so that
whoever sees the topic finds its settings.
"""

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.controller.topics import placement
from logyard.broker.controller.topics.topics import name_problem
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import INTERNAL_TOPICS, NO_LEADER, Assignment, TopicAssignment, TopicPartition, topic_id_text
from logyard.broker.znodes import brokers, config_changes, configs, delete_topics, partition_state, topics
from logyard.broker.znodes.ops import Znode
from logyard.broker.znodes.paths import BROKER_IDS, CONFIG_CHANGES
from logyard.cli.topics.text import PartitionLine, TopicLines
from logyard.local.errors import LocalError

CONNECT_S = 15.0
CHANGE = f"{CONFIG_CHANGES}/config_change_"


class ZooKeeperTopics:
    """Reads and changes topics' znodes. Methods raise ApiError on what brokers would refuse, LocalError else."""

    def __init__(self, connect: str) -> None:
        self._client: Any = KazooClient(connect, timeout=CONNECT_S)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a chroot that is not there: said in our own words
                self._client.start(timeout=CONNECT_S)
        except (KazooTimeoutError, KazooException) as error:
            self.close()
            raise LocalError(f"no ZooKeeper answers at {connect}: check --zookeeper") from error

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def names(self) -> list[str]:
        return self._children(topics.PATH)

    def live(self) -> list[int]:
        return sorted(int(name) for name in self._children(BROKER_IDS))

    def lines(self, names: Sequence[str]) -> list[TopicLines]:
        deleting = set(self._children(delete_topics.PATH))
        return [found for name in names if (found := self._lines(name, name in deleting)) is not None]

    def create(self, topic: NewTopic, *, if_not_exists: bool) -> list[str]:
        if self._client.exists(topics.PATH) is None:
            raise LocalError("no cluster keeps its topics there: check the chroot of --zookeeper")
        if topic.name in self.names():
            if if_not_exists:
                return []
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        problem = name_problem(topic.name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        collides = [other for other in self.names() if _metric_name(other) == _metric_name(topic.name)]
        if collides:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topics: {collides[0]}"
            )
        placed = self._placed(topic)
        self._put(configs.topic_path(topic.name), configs.encode(topic.configs))
        assignment = TopicAssignment({p: Assignment(tuple(replicas)) for p, replicas in placed.items()})
        try:
            self._client.create(topics.topic_path(topic.name), topics.encode(assignment, topics.VERSION_REASSIGNING))
        except NodeExistsError:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.") from None
        return [f"Created topic {topic.name}."]

    def add_partitions(self, name: str, total: int, assignment: Mapping[int, Sequence[int]] | None) -> list[str]:
        znode = self._get(topics.topic_path(name))
        if znode is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")
        there = topics.decode(znode.data, topics.topic_path(name))
        if any(a.is_reassigning for a in there.partitions.values()):
            raise ApiError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS, f"Topic '{name}' is being reassigned: wait until it is done"
            )
        if total <= len(there.partitions):
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The number of partitions for a topic can only be increased. Topic {name} currently has "
                f"{len(there.partitions)} partitions, {total} would not be an increase.",
            )
        existing = {p: a.replicas for p, a in there.partitions.items()}
        added = self._added(existing, total, assignment)
        full = {**there.partitions, **{p: Assignment(tuple(replicas)) for p, replicas in added.items()}}
        version = topics.VERSION_REASSIGNING if there.topic_id is None else topics.VERSION_TOPIC_ID
        data = topics.encode(TopicAssignment(full, there.topic_id), version)
        try:
            self._client.set(topics.topic_path(name), data, version=znode.version)
        except (BadVersionError, NoNodeError):
            raise LocalError(f"topic {name} was changed meanwhile: look at it and try again") from None
        return ["Adding partitions succeeded!"]

    def alter_configs(self, name: str, values: Mapping[str, str], delete: Sequence[str]) -> list[str]:
        znode = self._get(configs.topic_path(name))
        kept = configs.decode(znode.data, configs.topic_path(name)) if znode is not None else {}
        merged = {key: value for key, value in {**kept, **values}.items() if key not in delete}
        self._put(configs.topic_path(name), configs.encode(merged))
        self._client.create(CHANGE, config_changes.encode(configs.TOPICS, name), sequence=True)
        return [f"Updated config for topic {name}."]

    def delete(self, name: str) -> list[str]:
        if name in INTERNAL_TOPICS:
            raise LocalError(f"Topic {name} is a kafka internal topic and is not allowed to be marked for deletion")
        try:
            self._client.create(delete_topics.path(name))
        except NodeExistsError:
            return [f"Topic {name} is already marked for deletion."]
        return [
            f"Topic {name} is marked for deletion.",
            "Note: This will have no impact if delete.topic.enable is not set to true.",
        ]

    def _placed(self, topic: NewTopic) -> Mapping[int, Sequence[int]]:
        if topic.assignment:
            return placement.check_manual(sorted(topic.assignment.items()))
        if topic.partitions < 1 or topic.replication_factor < 1:
            raise LocalError("--zookeeper knows no defaults: give --partitions and --replication-factor")
        live = self._brokers()
        if not live:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is registered: start one first")
        start, shift = random.randrange(len(live)), random.randrange(len(live))
        return placement.place(live, topic.partitions, topic.replication_factor, start=start, shift=shift)

    def _added(
        self, existing: Mapping[int, Sequence[int]], total: int, assignment: Mapping[int, Sequence[int]] | None
    ) -> Mapping[int, Sequence[int]]:
        if assignment is None:
            return placement.grow(self._brokers(), existing, total)
        added = {
            partition: replicas for partition, replicas in assignment.items() if len(existing) <= partition < total
        }
        if len(added) != total - len(existing):
            raise LocalError(f"--replica-assignment: name the brokers of all {total} partitions")
        for replicas in added.values():
            placement.check_replicas(replicas)
        return added

    def _brokers(self) -> list[placement.BrokerRack]:
        found = []
        for broker in self.live():
            znode = self._get(brokers.path(broker))
            if znode is not None:
                found.append((broker, brokers.decode(broker, znode).rack))
        return found

    def _lines(self, name: str, deleting: bool) -> TopicLines | None:
        znode = self._get(topics.topic_path(name))
        if znode is None:
            return None
        there = topics.decode(znode.data, topics.topic_path(name))
        config = self._get(configs.topic_path(name))
        values = configs.decode(config.data, configs.topic_path(name)) if config is not None else {}
        return TopicLines(
            name=name,
            partitions=[self._partition(name, p, assigned) for p, assigned in sorted(there.partitions.items())],
            configs=values,
            topic_id=None if there.topic_id is None else topic_id_text(there.topic_id),
            min_isr=int(values.get("min.insync.replicas", "1")),
            deleting=deleting,
        )

    def _partition(self, topic: str, partition: int, assigned: Assignment) -> PartitionLine:
        tp = TopicPartition(topic, partition)
        znode = self._get(partition_state.path(tp))
        state = partition_state.decode(znode.data, znode.version) if znode is not None else None
        return PartitionLine(
            partition=partition,
            leader=state.leader if state is not None else NO_LEADER,
            replicas=assigned.replicas,
            isr=state.isr if state is not None else (),
            adding=assigned.adding if assigned.is_reassigning else None,
            removing=assigned.removing if assigned.is_reassigning else None,
        )

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return []

    def _get(self, path: str) -> Znode | None:
        try:
            data, stat = self._client.get(path)
        except NoNodeError:
            return None
        return Znode(data, stat.version, stat.czxid, stat.mtime, stat.ephemeralOwner)

    def _put(self, path: str, data: bytes) -> None:
        try:
            self._client.create(path, data, makepath=True)
        except NodeExistsError:
            self._client.set(path, data)


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")
