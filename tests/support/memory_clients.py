"""The twins of `cluster/client.py` and the launcher, over one `MemoryCluster`; for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from logyard.admin.cluster.snapshot import (
    BrokerNode,
    ClusterSnapshot,
    ConfigValue,
    DirectorySpace,
    LogDirs,
    NewTopic,
    PartitionView,
    ReplicaSize,
    TopicView,
)
from logyard.admin.cluster.told_offsets import ToldOffsets
from logyard.admin.ports import (
    EARLIEST,
    LATEST,
    ClusterUnreachable,
    DescribingClient,
    Ensemble,
    EnsembleUnreachable,
    Launcher,
    Pause,
    Quorum,
)
from logyard.admin.recovery.witnesses import HostState, Probe, Queue, Wire
from logyard.admin.settings import ClusterSettings
from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.broker.controller.topics import placement
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import Assignment, TopicPartition, topic_id_text
from tests.support.memory_access import MemoryAccess
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_ensemble import MemoryEnsemble
from tests.support.memory_fetch import MemoryFetch
from tests.support.memory_groups import MemoryGroups
from tests.support.memory_transactions import MemoryTransactions

FIXED = ("broker.id", "log.dirs")  # what no broker takes while it runs


class MemoryConnector:
    """`connect.Connector` onto one MemoryCluster; each look and each sleep is a tick of it."""

    def __init__(self, cluster: MemoryCluster, *, zookeeper: bool = True) -> None:
        self.cluster_state = cluster
        self._zookeeper = zookeeper

    def cluster(self, settings: ClusterSettings) -> DescribingClient:
        return MemoryClient(self.cluster_state)

    def ensemble(self, settings: ClusterSettings) -> Ensemble:
        if not self._zookeeper:
            raise EnsembleUnreachable("this needs ZooKeeper")
        return MemoryEnsemble(self.cluster_state)

    def znodes(self, settings: ClusterSettings) -> ZnodeClient:
        return self.cluster_state.znodes

    def launcher(self, start: Sequence[str], stop: Sequence[str] = (), status: Sequence[str] = ()) -> Launcher:
        return MemoryLauncher(self.cluster_state, can_stop=bool(stop), can_tell=bool(status))

    def pause(self) -> Pause:
        return MemoryPause(self.cluster_state)

    def why_unreachable(self, settings: ClusterSettings, problem: ClusterUnreachable) -> str:
        return f"Address: {problem}"


class MemoryLauncher:
    def __init__(self, cluster: MemoryCluster, *, can_stop: bool = False, can_tell: bool = False) -> None:
        self._cluster, self.can_stop, self._can_tell = cluster, can_stop, can_tell

    def start(self, broker: int, host: str = "", rack: str = "") -> None:
        self._cluster.start(broker)

    def stop(self, broker: int, host: str = "", rack: str = "") -> bool:
        if self.can_stop:
            self._cluster.stop(broker)
        return self.can_stop

    def host_state(self, broker: int, host: str = "", rack: str = "") -> HostState:
        if not self._can_tell:
            return HostState.UNKNOWN
        if broker not in self._cluster.running:
            return HostState.GONE
        return HostState.SILENT if broker in self._cluster.hung else HostState.ANSWERS


class MemoryPause:
    """Sleeping is what lets the cluster move."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self._cluster.now_ms += round(seconds * 1000)
        self._cluster.tick()


class MemoryClient(MemoryTransactions, MemoryAccess, MemoryGroups, MemoryFetch):
    """`ports.ClusterClient` onto a MemoryCluster."""

    reaches_dead_brokers = False

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot:
        c = self._cluster
        c.looks += 1
        c.tick()
        if not c.running:
            raise ClusterUnreachable("no broker answered")
        names, missing = c.heard(topics)
        seen = self._snapshot(names, missing, c.told_moves() if reassignments else None)
        old = {name: view for name, view in c.outdated.items() if topics is None or name in topics}
        brokers = {broker: node for broker, node in seen.brokers.items() if broker not in c.unmet}
        return replace(seen, brokers=brokers, topics={**seen.topics, **old})

    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot:
        c = self._cluster
        c.looks += 1
        c.tick()
        c.awaited_moves()  # by the controller; raises as it does
        names = [name for name in sorted(c.configs) if topics is None or name in topics]
        return self._snapshot(names, [name for name in topics or () if name not in c.configs], None)

    def _snapshot(
        self, names: Sequence[str], missing: Sequence[str], moves: dict[TopicPartition, Assignment] | None
    ) -> ClusterSnapshot:
        c = self._cluster
        return ClusterSnapshot(
            cluster_id=c.cluster_id,
            controller=-1 if c.controller is None else c.controller,
            brokers={b: BrokerNode(b, f"host{b}", 9092, c.racks[b]) for b in c.live()},
            topics=self._topics(names),
            reassignments=moves,
            missing=tuple(missing),
        )

    def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        c = self._cluster
        if topic.name in c.configs or topic.name in c.deleting:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name} exists")
        brokers = [(b, c.racks[b]) for b in c.live()]
        placed = dict(
            placement.manual([(p, r) for p, r in topic.assignment.items()])
            if topic.assignment
            else placement.place(brokers, max(topic.partitions, 1), max(topic.replication_factor, 1))
        )
        placement.check_whole(placed)
        if validate_only:
            return
        c.topic_ids[topic.name] = topic_id_text(uuid4())
        c.configs[topic.name] = dict(topic.configs)
        for number, replicas in placed.items():
            c.assignments[TopicPartition(topic.name, number)] = Assignment(tuple(replicas))

    def delete_topic(self, topic: str, topic_id: str | None = None) -> None:
        c = self._cluster
        if topic_id is not None and topic_id != c.topic_ids.get(topic):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        self._known(topic)
        del c.configs[topic]
        c.topic_ids.pop(topic, None)
        if c.ticks_to_delete:
            c.deleting[topic] = c.ticks_to_delete
        for table in (c.assignments, c.states, c.moving):
            for tp in [tp for tp in table if tp.topic == topic]:
                table.pop(tp)

    def add_partitions(
        self, topic: str, total: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        self._known(topic)
        c = self._cluster
        existing = {tp.partition: a.replicas for tp, a in c.assignments.items() if tp.topic == topic}
        if total <= len(existing):
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"topic {topic} has {len(existing)} partitions already")
        if not validate_only:
            for number, replicas in placement.grow([(b, None) for b in c.live()], existing, total):
                c.assignments[TopicPartition(topic, number)] = Assignment(replicas)

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]:
        self._known(topic)
        set_here = {k: ConfigValue(v, "DYNAMIC_TOPIC_CONFIG") for k, v in self._cluster.configs[topic].items()}
        defaults = {"cleanup.policy": "delete", "min.insync.replicas": "1"}
        return {key: ConfigValue(value, "DEFAULT_CONFIG") for key, value in defaults.items()} | set_here

    def topics_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigValue]]:
        return {topic: self.topic_configs(topic) for topic in topics if topic in self._cluster.configs}

    def alter_topic_configs(
        self, topic: str, values: Mapping[str, str], delete: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        self._known(topic)
        if not validate_only:
            _alter(self._cluster.configs[topic], values, delete)

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]:
        self._reachable(broker)
        mine = self._cluster.broker_config.get(broker, {})
        own = {key: ConfigValue(value, "DYNAMIC_BROKER_CONFIG") for key, value in mine.items()}
        return self.broker_defaults() | own

    def broker_defaults(self) -> dict[str, ConfigValue]:
        found = self._cluster.broker_defaults
        return {key: ConfigValue(value, "DYNAMIC_DEFAULT_BROKER_CONFIG") for key, value in found.items()}

    def alter_broker_configs(
        self, broker: int | None, values: Mapping[str, str], delete: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        if broker is not None:
            self._reachable(broker)
        fixed = [key for key in (*values, *delete) if key in FIXED]
        if fixed:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {fixed}")
        if validate_only:
            return
        defaults, own = self._cluster.broker_defaults, self._cluster.broker_config
        _alter(defaults if broker is None else own.setdefault(broker, {}), values, delete)

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        return {tp: self._reassign(tp, target) for tp, target in targets.items()}

    def _reassign(self, tp: TopicPartition, target: Sequence[int] | None) -> ApiError | None:
        c = self._cluster
        placed = c.assignments.get(tp)
        if placed is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} is unknown")
        if target is None:
            if not placed.is_reassigning:
                return ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{tp} is not being moved")
            c.assignments[tp] = Assignment(placed.origin)
            c.moving.pop(tp, None)
            return None
        if not set(target) - set(placed.replicas) <= set(c.live()):
            return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{tp}: a broker of {list(target)} is not alive")
        c.assignments[tp] = placed.reassign_to(target)
        c.moving[tp] = c.ticks_to_move
        return None

    def list_reassignments(self) -> dict[TopicPartition, Assignment]:
        return self._cluster.awaited_moves()

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]:
        c = self._cluster
        return {tp: self._prefer(tp) for tp in (sorted(c.assignments) if partitions is None else partitions)}

    def _prefer(self, tp: TopicPartition) -> ApiError | None:
        c = self._cluster
        state, preferred = c.states[tp], c.assignments[tp].replicas[0]
        if state.leader == preferred:
            return ApiError(ErrorCode.ELECTION_NOT_NEEDED)
        if preferred not in state.isr or preferred not in c.sessions:
            return ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        c.states[tp] = state._replace(leader=preferred, leader_epoch=state.leader_epoch + 1)
        return None

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]:
        c = self._cluster
        for broker in c.live() if brokers is None else brokers:
            self._reachable(broker)
        return [
            ReplicaSize(broker, c.log_dirs.get((*tp, broker), f"/data/{broker}"), tp, c.sizes.get(tp, 0))
            for tp, placed in sorted(c.assignments.items())
            for broker in placed.replicas
            if broker in c.sessions and (brokers is None or broker in brokers)
        ]

    def log_dirs(self, brokers: Sequence[int] | None = None) -> LogDirs:
        replicas = self.replica_sizes(brokers)
        held = {(replica.broker, replica.log_dir) for replica in replicas}
        said = {place: space for place, space in self._cluster.disks.items() if brokers is None or place[0] in brokers}
        spaces = dict.fromkeys(sorted(held), (None, None)) | said
        return LogDirs(tuple(replicas), tuple(DirectorySpace(*place, *space) for place, space in spaces.items()))

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[str, int, int], str]
    ) -> dict[tuple[str, int, int], ApiError | None]:
        return {replica: self._put_in(replica, path) for replica, path in moves.items()}

    def _put_in(self, replica: tuple[str, int, int], path: str) -> ApiError | None:
        placed = self._cluster.assignments.get(TopicPartition(*replica[:2]))
        if placed is None or replica[2] not in placed.replicas:
            return ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"no replica of {replica[0]}-{replica[1]}")
        self._cluster.log_dirs[replica] = path
        return None

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: int = LATEST) -> dict[TopicPartition, int]:
        if timestamp >= 0:
            late = {tp: self._cluster.record_times.get(tp, -1) >= timestamp for tp in partitions}
            return {tp: self._cluster.end_offsets.get(tp, 1) - 1 if late[tp] else -1 for tp in partitions}
        table = self._cluster.start_offsets if timestamp == EARLIEST else self._cluster.end_offsets
        return {tp: table.get(tp, 0) for tp in partitions}

    def told_offsets(self, leaders: Mapping[TopicPartition, int], timestamp: int = LATEST) -> ToldOffsets:
        found: dict[TopicPartition, int] = {}
        untold: dict[TopicPartition, str] = {}
        silent: set[int] = set()
        for leader in sorted(set(leaders.values())):
            mine = [tp for tp, of in leaders.items() if of == leader]
            try:
                if leader not in self._cluster.running - self._cluster.hung:
                    raise ClusterUnreachable("no answer in time")
                found |= self.offsets(mine, timestamp)
            except (ApiError, ClusterUnreachable) as problem:
                untold |= dict.fromkeys(mine, f"broker {leader}: {problem}")
                silent |= {leader} if isinstance(problem, ClusterUnreachable) else set()
        return ToldOffsets(found, untold, frozenset(silent))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._cluster.start_offsets.update(before)
        return dict(before)

    def quorum(self) -> Quorum | None:
        return self._cluster.quorum

    def probe(self, addresses: Mapping[int, tuple[str, int]], timeout_s: float) -> dict[int, Probe]:
        return {broker: self.probe_broker(broker) for broker in addresses}

    def probe_broker(self, broker: int) -> Probe:
        c = self._cluster
        if broker not in c.running:
            return Probe(broker, Wire.CLOSED)
        if broker in c.hung:
            # What hangs here does nothing at all, as under SIGSTOP: connections are accepted by the kernel alone.
            return Probe(broker, Wire.SILENT)
        believed = c.beliefs.get(broker, -1 if c.controller is None else c.controller)
        queue = Queue.ANSWERS if broker == c.controller else Queue.REFUSES
        return Probe(broker, Wire.ANSWERS, queue, believed, c.cluster_id)

    def _reachable(self, broker: int) -> None:
        """Each broker answers for its own settings, and nobody else does."""
        c = self._cluster
        if broker not in c.sessions:
            raise ClusterUnreachable(f"the cluster did not answer: broker {broker} is unknown")
        if broker not in c.running - c.hung:
            raise ClusterUnreachable(f"the cluster did not answer: broker {broker} is silent")

    def _known(self, topic: str) -> None:
        if topic not in self._cluster.configs:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")

    def _topics(self, names: Sequence[str]) -> dict[str, TopicView]:
        c = self._cluster
        views: dict[str, list[PartitionView]] = {name: [] for name in names}
        for tp, placed in sorted(c.assignments.items()):
            if tp.topic in views:
                state = c.states.get(tp)
                views[tp.topic].append(
                    PartitionView(tp.partition, state.leader, placed.replicas, state.isr, state.leader_epoch)
                    if state
                    else PartitionView(tp.partition, -1, placed.replicas, ())
                )
        return {name: TopicView(name, tuple(found), c.topic_ids.get(name)) for name, found in views.items()}


def _alter(table: dict[str, str], values: Mapping[str, str], delete: Sequence[str]) -> None:
    table.update(values)
    for key in delete:
        table.pop(key, None)
