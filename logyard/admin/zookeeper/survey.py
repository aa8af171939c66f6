"""A survey of all znodes of a cluster, decoded; znodes that cannot be decoded are kept as problems."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.broker.errors import CorruptData
from logyard.broker.model import BrokerInfo, PartitionState, TopicAssignment, TopicPartition
from logyard.broker.znodes import (
    brokers,
    cluster_id,
    config_changes,
    configs,
    controller,
    delete_topics,
    isr_notifications,
    log_dir_events,
    partition_state,
    preferred_election,
    producer_ids,
    reassignments,
    topics,
)
from logyard.broker.znodes.ops import Znode
from logyard.broker.znodes.paths import PERSISTENT

K = TypeVar("K")
T = TypeVar("T")


@dataclass
class Survey:
    """The result of a survey. `znodes` has every znode that was read, `bad` why one could not be decoded, by path."""

    znodes: dict[str, Znode] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    topics: dict[str, TopicAssignment] = field(default_factory=dict)
    topic_names: tuple[str, ...] = ()
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    orphans: tuple[TopicPartition, ...] = ()
    config_names: tuple[str, ...] = ()
    deleting: tuple[str, ...] = ()
    controller: int | None = None
    controller_epoch: int | None = None
    reassignments: Mapping[TopicPartition, tuple[int, ...]] | None = None
    elections: Sequence[TopicPartition] | None = None
    isr_notifications: tuple[str, ...] = ()
    log_dir_events: dict[str, int] = field(default_factory=dict)

    def version(self, path: str) -> int:
        return self.znodes[path].version

    def age_s(self, path: str, now_ms: int) -> float:
        """Seconds since the znode was last written (ZooKeeper's clock compared with ours)."""
        return max(now_ms - self.znodes[path].mtime_ms, 0) / 1000


def survey(client: ZnodeClient) -> Survey:
    """Read everything. Raises EnsembleUnreachable."""
    look = _Look(client)
    found = look.found
    found.missing = tuple(p for p, znode in zip(PERSISTENT, client.read(PERSISTENT), strict=True) if znode is None)
    look.decode_all(
        {
            controller.PATH: lambda z: setattr(found, "controller", controller.decode(z.data)),
            controller.EPOCH_PATH: lambda z: setattr(found, "controller_epoch", controller.decode_epoch(z.data)),
            reassignments.PATH: lambda z: setattr(found, "reassignments", reassignments.decode(z.data)),
            preferred_election.PATH: lambda z: setattr(found, "elections", preferred_election.decode(z.data)),
            cluster_id.PATH: lambda z: cluster_id.decode(z.data),
            producer_ids.PATH: lambda z: producer_ids.decode(z.data) if z.data else None,
        }
    )
    found.brokers = {
        int(name): info
        for name, info in look.each(
            look.children(brokers.IDS_PATH), lambda n: f"{brokers.IDS_PATH}/{n}", _broker
        ).items()
        if name.isdecimal()
    }
    found.topic_names = tuple(look.children(topics.PATH))
    found.topics = look.each(found.topic_names, topics.topic_path, lambda path, z: topics.decode(z.data, path))
    _read_states(look)
    found.deleting = tuple(look.children(delete_topics.PATH))
    look.each(found.deleting, delete_topics.path, lambda path, z: None)
    found.config_names = tuple(look.children(configs.type_path(configs.TOPICS)))
    look.each(found.config_names, configs.topic_path, _config)
    for kind in (configs.BROKERS, configs.CLIENTS, configs.USERS, configs.IPS):
        names = look.children(configs.type_path(kind))
        look.each(names, partial(configs.path, kind), _config)
    changes = look.children(config_changes.PATH)
    look.each(changes, config_changes.path, lambda path, z: config_changes.decode(z.data, path))
    found.isr_notifications = tuple(look.children(isr_notifications.PATH))
    look.each(found.isr_notifications, isr_notifications.path, lambda path, z: isr_notifications.decode(z.data, path))
    found.log_dir_events = look.each(
        look.children(log_dir_events.PATH), log_dir_events.path, lambda path, z: log_dir_events.decode(z.data, path)
    )
    return found


def _config(path: str, znode: Znode) -> dict[str, str]:
    return configs.decode(znode.data, path)


def _broker(path: str, znode: Znode) -> BrokerInfo:
    name = path.rpartition("/")[2]
    if not name.isdecimal():
        raise CorruptData(f"znode {brokers.IDS_PATH}/{name}: a broker's id is expected as its name")
    return brokers.decode(int(name), znode)


def _read_states(look: "_Look") -> None:
    found = look.found
    wanted = [TopicPartition(name, p) for name, topic in found.topics.items() for p in topic.partitions]
    there = [
        TopicPartition(name, int(number))
        for name in found.topic_names
        for number in look.children(topics.partitions_path(name))
        if number.isdecimal()
    ]
    known = set(wanted)
    found.orphans = tuple(tp for tp in there if tp not in known and tp.topic in found.topics)
    found.states = look.each(
        wanted, partition_state.path, lambda path, z: partition_state.decode(z.data, z.version, path)
    )


class _Look:
    """Reads and decodes znodes, and keeps the failures."""

    def __init__(self, client: ZnodeClient) -> None:
        self._client = client
        self.found = Survey()

    def children(self, path: str) -> list[str]:
        return self._client.children(path) or []

    def decode_all(self, decoders: Mapping[str, Callable[[Znode], object]]) -> None:
        self.each(list(decoders), lambda path: path, lambda path, znode: decoders[path](znode))

    def each(self, keys: Sequence[K], path: Callable[[K], str], decode: Callable[[str, Znode], T]) -> dict[K, T]:
        """Key → decoded value, of the znodes that exist and can be decoded."""
        decoded: dict[K, T] = {}
        for key, znode in zip(keys, self._client.read([path(key) for key in keys]), strict=True):
            if znode is None:
                continue
            self.found.znodes[path(key)] = znode
            try:
                decoded[key] = decode(path(key), znode)
            except CorruptData as problem:
                self.found.bad[path(key)] = str(problem)
        return decoded
