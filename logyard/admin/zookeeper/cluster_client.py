"""Moves of replicas and elections through znodes: for clusters whose brokers lack the requests.

It writes what Kafka's tools wrote before KIP-455 (2.4); the controller notices it by its watches:
/admin/reassign_partitions, /admin/preferred_replica_election, /config/… with a notification below /config/changes.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from logyard.admin.cluster.snapshot import (
    NO_CONTROLLER,
    BrokerNode,
    ClusterSnapshot,
    ConfigValue,
    LogDirs,
    PartitionView,
    ReplicaSize,
    TopicView,
)
from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.quantities import whole
from logyard.admin.zookeeper.batch import registrations
from logyard.admin.zookeeper.znodes import ZnodeClient, make
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.model import NO_LEADER, Assignment, BrokerInfo, TopicAssignment, TopicPartition, topic_id_text
from logyard.broker.znodes import (
    brokers,
    cluster_id,
    config_changes,
    configs,
    controller,
    delete_topics,
    partition_state,
    preferred_election,
    reassignments,
    topics,
)
from logyard.broker.znodes.ops import Create, Delete, SetData, ZkCode, Znode, refused

_TRIES = 5
_MIN_ISR = "min.insync.replicas"


class ZooKeeperClusterClient:
    """`ending.ReassignmentClient` and `elections.ElectionClient` over znodes. Methods raise EnsembleUnreachable."""

    reaches_dead_brokers = True  # their settings are znodes, which they read when they start

    def __init__(self, znodes: ZnodeClient) -> None:
        self._znodes = znodes

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot:
        named = None if topics is None else set(topics)
        names = [name for name in self._names() if named is None or name in named]
        placed = self._placed(names)
        states = self._states([TopicPartition(name, p) for name, topic in placed.items() for p in topic.partitions])
        held, identity = self._znodes.read([controller.PATH, cluster_id.PATH])
        return ClusterSnapshot(
            cluster_id="" if identity is None else cluster_id.decode(identity.data),
            controller=NO_CONTROLLER if held is None else controller.decode(held.data),
            brokers=self._brokers(),
            topics={
                name: TopicView(
                    name=name,
                    partitions=tuple(
                        _view(number, assignment, states.get(TopicPartition(name, number)))
                        for number, assignment in sorted(topic.partitions.items())
                    ),
                    topic_id=None if topic.topic_id is None else topic_id_text(topic.topic_id),
                )
                for name, topic in placed.items()
            },
            taken_at_ms=time.time_ns() // 1_000_000,
            reassignments=self.list_reassignments() if reassignments else None,
            missing=tuple(sorted(set(topics or ()) - set(placed))),
        )

    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot:
        """The same as ZooKeeper's leader knows it: one of its servers that is behind is no witness of what is gone."""
        self._znodes.sync()
        return self.snapshot(topics)

    def list_reassignments(self) -> dict[TopicPartition, Assignment]:
        """Running moves (from the topics' znodes) and those that /admin/reassign_partitions still requests."""
        placed = {
            TopicPartition(name, number): assignment
            for name, topic in self._placed(self._names()).items()
            for number, assignment in topic.partitions.items()
        }
        found = {tp: assignment for tp, assignment in placed.items() if assignment.is_reassigning}
        for tp, target in self._pending().items():
            found.setdefault(tp, placed[tp].reassign_to(target) if tp in placed else Assignment(target))
        return found

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        wanted = {tp: replicas for tp, replicas in targets.items() if replicas is not None}
        if len(wanted) < len(targets):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "ZooKeeper has no way to cancel a reassignment: use --bootstrap-server"
            )
        if wanted:
            problem = refused(self._znodes.commit([Create(reassignments.PATH, reassignments.encode(wanted))]))
            if problem is ZkCode.NODE_EXISTS:
                raise ApiError(
                    ErrorCode.REASSIGNMENT_IN_PROGRESS,
                    f"{reassignments.PATH} exists: wait until the controller has taken its request",
                )
            _check(problem, reassignments.PATH)
        return dict.fromkeys(targets)

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]:
        """Request preferred elections; None in the answer only means that the election was requested."""
        if unclean:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "ZooKeeper supports only preferred elections: use --bootstrap-server"
            )
        wanted = [tp for tp, _ in self.snapshot().partitions()] if partitions is None else list(partitions)
        problem = refused(self._znodes.commit([Create(preferred_election.PATH, preferred_election.encode(wanted))]))
        if problem is ZkCode.NODE_EXISTS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"an election is already requested: wait until the controller has removed {preferred_election.PATH}",
            )
        _check(problem, preferred_election.PATH)
        return dict.fromkeys(wanted)

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]:
        return []  # only the brokers have them

    def log_dirs(self, brokers: Sequence[int] | None = None) -> LogDirs:
        return LogDirs()

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[str, int, int], str]
    ) -> dict[tuple[str, int, int], ApiError | None]:
        raise ApiError(ErrorCode.INVALID_REQUEST, "log_dirs need --bootstrap-server: ZooKeeper has no directories")

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]:
        return self._configs(configs.topic_path(topic), "DYNAMIC_TOPIC_CONFIG")

    def alter_topic_configs(self, topic: str, values: Mapping[str, str], delete: Sequence[str] = ()) -> None:
        self.alter_entity(configs.TOPICS, topic, values, delete)

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]:
        return self._configs(configs.broker_path(broker), "DYNAMIC_BROKER_CONFIG")

    def alter_broker_configs(self, broker: int, values: Mapping[str, str], delete: Sequence[str] = ()) -> None:
        self.alter_entity(configs.BROKERS, str(broker), values, delete)

    def alter_entity(self, entity_type: str, name: str, values: Mapping[str, str], delete: Iterable[str]) -> None:
        """Change the named settings and keep the rest, even if somebody else changes them at the same time."""
        path = configs.path(entity_type, name)
        for _ in range(_TRIES):
            znode = self._znodes.read([path])[0]
            before = {} if znode is None else configs.decode(znode.data, path)
            after = {key: value for key, value in {**before, **values}.items() if key not in set(delete)}
            if after == before:
                return
            make(self._znodes, config_changes.PATH)  # before the first broker starts it is missing
            notice = config_changes.notice(entity_type, name)
            if after or entity_type in (configs.TOPICS, configs.BROKERS):
                problem = self._write(path, znode, configs.encode(after), notice)
            else:
                problem = self._remove(path, znode, notice)
            if problem is None:
                return
            if problem is ZkCode.NO_NODE:
                raise EnsembleUnreachable(f"{path} cannot be created: check the chroot of --zookeeper")
        raise EnsembleUnreachable(f"{path} keeps being changed by somebody else: try again")

    def registrations(self) -> dict[int, BrokerInfo]:
        """The live brokers by id (see `batch.registrations`)."""
        return registrations(self._znodes.children(brokers.IDS_PATH) or (), self._znodes.read)

    def controller_epoch(self) -> int | None:
        znode = self._znodes.read([controller.EPOCH_PATH])[0]
        return None if znode is None else controller.decode_epoch(znode.data)

    def min_isrs(self, names: Sequence[str]) -> dict[str, int]:
        """min.insync.replicas by topic, as far as it is in ZooKeeper and not in brokers' files."""
        paths = [configs.broker_path(None), *map(configs.topic_path, names)]
        values = [
            whole(configs.decode(znode.data, path).get(_MIN_ISR), 0) if znode is not None else 0
            for path, znode in zip(paths, self._znodes.read(paths), strict=True)
        ]
        return {name: value or values[0] or 1 for name, value in zip(names, values[1:], strict=True)}

    # -- reading -----------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        deleting = set(self._znodes.children(delete_topics.PATH) or ())
        return [name for name in self._znodes.children(topics.PATH) or () if name not in deleting]

    def _placed(self, names: Sequence[str]) -> dict[str, TopicAssignment]:
        found = {}
        for name, znode in zip(names, self._znodes.read([topics.topic_path(n) for n in names]), strict=True):
            try:
                if znode is not None:
                    found[name] = topics.decode(znode.data, topics.topic_path(name))
            except CorruptData:
                continue  # a bad topic affects only itself; `logyard zk check` names it
        return found

    def _states(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionView]:
        found = {}
        paths = [partition_state.path(tp) for tp in partitions]
        for tp, path, znode in zip(partitions, paths, self._znodes.read(paths), strict=True):
            try:
                if znode is not None:
                    state = partition_state.decode(znode.data, znode.version, path)
                    found[tp] = PartitionView(tp.partition, state.leader, (), state.isr, state.leader_epoch)
            except CorruptData:
                continue
        return found

    def _brokers(self) -> dict[int, BrokerNode]:
        found = {}
        for broker, info in self.registrations().items():
            first = info.endpoints[0] if info.endpoints else None
            found[broker] = BrokerNode(broker, first.host if first else "", first.port if first else -1, info.rack)
        return found

    def _pending(self) -> dict[TopicPartition, tuple[int, ...]]:
        znode = self._znodes.read([reassignments.PATH])[0]
        return {} if znode is None else reassignments.decode(znode.data)

    # -- settings ----------------------------------------------------------------------------------------

    def _configs(self, path: str, source: str) -> dict[str, ConfigValue]:
        znode = self._znodes.read([path])[0]
        values = {} if znode is None else configs.decode(znode.data, path)
        return {key: ConfigValue(value, source) for key, value in values.items()}

    def _write(self, path: str, znode: Znode | None, data: bytes, notice: Create) -> ZkCode | None:
        """Write settings and their notification together: nobody may die between them."""
        if znode is None:
            make(self._znodes, path.rpartition("/")[0])
        write = Create(path, data) if znode is None else SetData(path, data, znode.version)
        return refused(self._znodes.commit([write, notice]))

    def _remove(self, path: str, znode: Znode | None, notice: Create) -> ZkCode | None:
        """Remove the znode of a user, client or address without settings, as Kafka does, unless others are below it."""
        if znode is None:
            return None
        problem = refused(self._znodes.commit([Delete(path, znode.version), notice]))
        if problem is ZkCode.NOT_EMPTY:
            return self._write(path, znode, configs.encode({}), notice)
        user, between, _ = path.rpartition(f"/{configs.CLIENTS}/")
        if problem is None and between and user.startswith(f"{configs.type_path(configs.USERS)}/"):
            self._remove_empty_user(user)
        return problem

    def _remove_empty_user(self, user: str) -> None:
        """Remove the folder of a user's clients and the user above it, where nothing is left in them."""
        (folder,) = self._znodes.commit([Delete(f"{user}/{configs.CLIENTS}")])
        znode = self._znodes.read([user])[0]
        if folder.ok and znode is not None and configs.holds_nothing(znode.data):
            self._znodes.commit([Delete(user, znode.version)])  # refused if somebody has written meanwhile


def _view(number: int, assignment: Assignment, state: PartitionView | None) -> PartitionView:
    if state is None:
        return PartitionView(number, NO_LEADER, assignment.replicas, ())
    return PartitionView(number, state.leader, assignment.replicas, state.isr, state.leader_epoch)


def _check(problem: ZkCode | None, path: str) -> None:
    if problem is not None:
        raise EnsembleUnreachable(f"{path} could not be written: {problem.value}")
