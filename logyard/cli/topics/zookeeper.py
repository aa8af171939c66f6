"""Topics by writing znodes: the meaning of `--zookeeper` before Kafka 3.0, which every broker still supports.

The controller finds the znodes by its watches. A creation writes /config/topics/T first, so that the settings exist
before the topic does.
"""

import random
from collections.abc import Mapping, Sequence

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.quantities import whole
from logyard.admin.zookeeper.cluster_client import ZooKeeperClusterClient
from logyard.admin.zookeeper.znodes import ZnodeClient, make
from logyard.broker.controller.topics import placement
from logyard.broker.controller.topics.topics import name_problem
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import (
    INTERNAL_TOPICS,
    NO_LEADER,
    Assignment,
    PartitionState,
    TopicAssignment,
    TopicPartition,
    topic_id_text,
)
from logyard.broker.znodes import brokers, configs, delete_topics, partition_state, topics
from logyard.broker.znodes.ops import Create, SetData, ZkCode, Znode, refused
from logyard.broker.znodes.paths import BROKER_IDS
from logyard.cli.topics.text import PartitionLine, TopicLines
from logyard.local.errors import LocalError


class ZooKeeperTopics:
    """Reads and changes topics' znodes.

    Methods raise ApiError for what brokers would refuse too, EnsembleUnreachable, and LocalError for the rest.
    """

    def __init__(self, znodes: ZnodeClient) -> None:
        self._znodes = znodes

    def close(self) -> None:
        self._znodes.close()

    def names(self) -> list[str]:
        return self._children(topics.PATH)

    def live(self) -> list[int]:
        return sorted(int(name) for name in self._children(BROKER_IDS) if name.isdecimal())

    def lines(self, names: Sequence[str]) -> list[TopicLines]:
        deleting = set(self._children(delete_topics.PATH))
        there = self._decoded(names)
        config_paths = [configs.topic_path(name) for name in there]
        values = dict(zip(there, self._znodes.read(config_paths), strict=True))
        states = self._states([TopicPartition(name, p) for name, one in there.items() for p in one.partitions])
        return [_lines(name, one, values[name], states, name in deleting) for name, one in there.items()]

    def create(self, topic: NewTopic, *, if_not_exists: bool) -> list[str]:
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
        assignment = TopicAssignment({p: Assignment(tuple(replicas)) for p, replicas in placed.items()})
        data, path = topics.encode(assignment, topics.VERSION_REASSIGNING), topics.topic_path(topic.name)
        make(self._znodes, configs.type_path(configs.TOPICS))
        settings_path, settings = configs.topic_path(topic.name), configs.encode(topic.configs)
        left = self._get(settings_path)  # by an earlier topic of that name
        write = Create(settings_path, settings) if left is None else SetData(settings_path, settings, left.version)
        # Together, so that who comes second does not write over the settings of who came first.
        problem_code = refused(self._znodes.commit([write, Create(path, data)]))
        if problem_code is ZkCode.NODE_EXISTS:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        _require_written(path, problem_code)
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
        path = topics.topic_path(name)
        problem = refused(self._znodes.commit([SetData(path, data, znode.version)]))
        if problem in (ZkCode.BAD_VERSION, ZkCode.NO_NODE):
            raise LocalError(f"topic {name} was changed meanwhile: check it and try again")
        _require_written(path, problem)
        return ["Adding partitions succeeded!"]

    def alter_configs(self, name: str, values: Mapping[str, str], delete: Sequence[str]) -> list[str]:
        ZooKeeperClusterClient(self._znodes).alter_topic_configs(name, values, delete)
        return [f"Updated config for topic {name}."]

    def delete(self, name: str) -> list[str]:
        if name in INTERNAL_TOPICS:
            raise LocalError(f"Topic {name} is a kafka internal topic and is not allowed to be marked for deletion")
        path = delete_topics.path(name)
        problem = refused(self._znodes.commit([Create(path)]))
        if problem is ZkCode.NODE_EXISTS:
            return [f"Topic {name} is already marked for deletion."]
        _require_written(path, problem)
        return [
            f"Topic {name} is marked for deletion.",
            "Note: This will have no impact if delete.topic.enable is not set to true.",
        ]

    def _placed(self, topic: NewTopic) -> Mapping[int, Sequence[int]]:
        if topic.assignment:
            placed = dict(placement.manual(sorted(topic.assignment.items())))
            placement.check_whole(placed)
            return placed
        if topic.partitions < 1 or topic.replication_factor < 1:
            raise LocalError("--zookeeper has no defaults: give --partitions and --replication-factor")
        live = self._brokers()
        if not live:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is registered: start one first")
        start, shift = random.randrange(len(live)), random.randrange(len(live))
        return dict(placement.place(live, topic.partitions, topic.replication_factor, start=start, shift=shift))

    def _added(
        self, existing: Mapping[int, Sequence[int]], total: int, assignment: Mapping[int, Sequence[int]] | None
    ) -> Mapping[int, Sequence[int]]:
        if assignment is None:
            return dict(placement.grow(self._brokers(), existing, total))
        added = {
            partition: replicas for partition, replicas in assignment.items() if len(existing) <= partition < total
        }
        if len(added) != total - len(existing):
            raise LocalError(f"--replica-assignment: name the brokers of all {total} partitions")
        for replicas in added.values():
            placement.check_replicas(replicas)
        return added

    def _brokers(self) -> list[placement.BrokerRack]:
        live = self.live()
        znodes = zip(live, self._znodes.read([brokers.path(broker) for broker in live]), strict=True)
        return [(broker, brokers.decode(broker, znode).rack) for broker, znode in znodes if znode is not None]

    def _decoded(self, names: Sequence[str]) -> dict[str, TopicAssignment]:
        """Those of the topics that exist."""
        paths = [topics.topic_path(name) for name in names]
        znodes = zip(names, paths, self._znodes.read(paths), strict=True)
        return {name: topics.decode(znode.data, path) for name, path, znode in znodes if znode is not None}

    def _states(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        znodes = zip(partitions, self._znodes.read([partition_state.path(tp) for tp in partitions]), strict=True)
        return {tp: partition_state.decode(one.data, one.version) for tp, one in znodes if one is not None}

    def _children(self, path: str) -> list[str]:
        return self._znodes.children(path) or []

    def _get(self, path: str) -> Znode | None:
        return self._znodes.read([path])[0]


def _lines(
    name: str,
    there: TopicAssignment,
    config: Znode | None,
    states: Mapping[TopicPartition, PartitionState],
    deleting: bool,
) -> TopicLines:
    values = configs.decode(config.data, configs.topic_path(name)) if config is not None else {}
    return TopicLines(
        name=name,
        partitions=[
            _partition(p, assigned, states.get(TopicPartition(name, p)))
            for p, assigned in sorted(there.partitions.items())
        ],
        configs=values,
        topic_id=None if there.topic_id is None else topic_id_text(there.topic_id),
        min_isr=whole(values.get("min.insync.replicas"), 1),
        deleting=deleting,
    )


def _partition(partition: int, assigned: Assignment, state: PartitionState | None) -> PartitionLine:
    return PartitionLine(
        partition=partition,
        leader=state.leader if state is not None else NO_LEADER,
        replicas=assigned.replicas,
        isr=state.isr if state is not None else (),
        adding=assigned.adding if assigned.is_reassigning else None,
        removing=assigned.removing if assigned.is_reassigning else None,
    )


def _require_written(path: str, problem: ZkCode | None) -> None:
    if problem is not None:
        raise LocalError(f"ZooKeeper refused to write {path}: {problem.value}")


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")
