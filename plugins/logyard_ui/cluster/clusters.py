"""The clusters that viewers look at: for each connection one cache, whoever asks, and the queries that it holds."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from logyard.admin.acls.acls import Acl
from logyard.admin.cluster.presence import settled, with_brokers, with_holders
from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, GroupView, LogDirs
from logyard.admin.connector import Connector
from logyard.admin.ports import EARLIEST, DescribingClient
from logyard.admin.quotas.quotas import Quota
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.cache.cache import Cached, Clocks, ClusterCache, Query
from logyard.plugins.logyard_ui.cache.worker import IDLE_S
from logyard.plugins.logyard_ui.cluster.broker_settings import BrokerChange, check_broker, read_defaults
from logyard.plugins.logyard_ui.cluster.controllers import ControllerHistory
from logyard.plugins.logyard_ui.cluster.gathering import Gathered, gather
from logyard.plugins.logyard_ui.cluster.lag import GroupDetail, Lag, read_group, read_lag
from logyard.plugins.logyard_ui.cluster.old_groups import OldGroups, read_old_groups
from logyard.plugins.logyard_ui.cluster.plan_preview import PlanRequest, preview
from logyard.plugins.logyard_ui.cluster.progress import Progress, Running, read_progress
from logyard.plugins.logyard_ui.cluster.rights import TopicRights, read_rights
from logyard.plugins.logyard_ui.cluster.security import Told, Users, read_acls, read_quotas, read_users
from logyard.plugins.logyard_ui.cluster.sizes import Sizes, read_sizes, sizes_json
from logyard.plugins.logyard_ui.cluster.state import ClusterState, ControllerEpoch, read_state
from logyard.plugins.logyard_ui.cluster.topic_check import TopicChange, Verdict, check
from logyard.plugins.logyard_ui.cluster.transactions import TopicTransactions, read_transactions
from logyard.plugins.logyard_ui.responses.document import Document

T = TypeVar("T")

CLUSTERS_MAX = 32
PARTITIONS_MAX = 5_000
# The page gives up soon: it asks again in a moment.
_REQUEST_S, _TOTAL_S = 3.0, 4.0

STATE, EPOCH = "snapshot", "epoch"
# A large cluster's state takes a second to read. Views show the last one meanwhile, and ask again in three seconds.
STATE_OLD_S = 30.0
# For how long the bytes on disk count as fresh: for lists, and for a plan, which may be asked just after a load.
SIZES_S, PLANNED_SIZES_S = 15.0, 1.0
# So long a state that looks under-replicated waits for the moves that may explain it.
MOVES_S = 1.0


@dataclass(frozen=True, slots=True)
class Offsets:
    """The first and the end offset of each of a topic's partitions; those without a living leader are missing, and
    those whose leader did not answer: `problem` names the first of these."""

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    problem: str | None = None


_MOVES: Query[Running] = Query("moves", "moves", 2.0, lambda client: client.list_reassignments())


class CachedCluster:
    """One cluster. Every method asks its cache for one thing and waits `wait_s` at most. They raise Busy."""

    def __init__(
        self,
        settings: ClusterSettings,
        connector: Connector,
        clocks: Clocks | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self.settings, self._connector, self._clocks = settings, connector, clocks or Clocks()
        brief = replace(settings, request_timeout_s=_REQUEST_S, total_timeout_s=_TOTAL_S)
        self._brief = brief
        self._history = ControllerHistory()
        self.cache = ClusterCache(lambda: connector.cluster(brief), self._clocks, idle_s)

    async def state(
        self, wait_s: float, topics: Iterable[str] = (), old_s: float = STATE_OLD_S
    ) -> Cached[ClusterState]:
        """The cluster's state; read again where one of these topics is missing in it (it may be new).

        `old_s`: how much older than usual it may be, rather than wait for a read that takes long.
        """
        query = Query(STATE, "snapshot", 2.0, self._read_state, old_s=old_s)
        cached = await self.cache.get(query, wait_s)
        if cached.value is None or cached.value.snapshot.topics.keys() >= set(topics):
            return cached
        return await self.cache.refresh(query, wait_s)

    async def running(self, wait_s: float) -> Cached[Running]:
        """The reassignments that run now."""
        return await self.cache.get(_MOVES, wait_s)

    async def progress(self, running: Running, snapshot: ClusterSnapshot, wait_s: float) -> Cached[Progress]:
        def read(client: DescribingClient) -> Progress:
            return read_progress(client, running, snapshot, self.cache.peek("progress"), self._clocks.monotonic())

        return await self.cache.get(Query("progress", "moves", 4.0, read), wait_s)

    async def refresh_epoch(self) -> None:
        """Start a read of the controller's epoch in ZooKeeper, where the connection names one; waits for nothing."""
        if self.settings.zookeeper is None:
            return
        state: ClusterState | None = self.cache.peek(STATE)
        known = state is not None and bool(state.controllers) and state.controllers[0]["epoch"] is not None
        await self.cache.get(Query(EPOCH, "zookeeper", 30.0 if known else 3.0, self._read_epoch), 0)

    async def sizes(self, snapshot: ClusterSnapshot, wait_s: float, fresh_s: float = SIZES_S) -> Cached[Sizes]:
        def read(client: DescribingClient) -> Sizes:
            sizes = read_sizes(client, sorted(snapshot.brokers))
            taken_ms = self._clocks.wall_ms()
            content = {"taken_at_ms": taken_ms} | sizes_json(sizes, snapshot)
            return replace(sizes, document=Document.plain(content), taken_ms=taken_ms)

        return await self.cache.get(Query("sizes", "sizes", fresh_s, read), wait_s)

    async def kept(self, what: str, read: Callable[[], T], wait_s: float, about: tuple[Any, ...] = ()) -> Cached[T]:
        """What `read` finds in the page's own history of this cluster, `about` something. One read at a time."""
        return await self.cache.get(Query(what, "history", 30.0, lambda _: read(), repr(about), 16), wait_s)

    async def groups(self, wait_s: float) -> Cached[list[GroupView]]:
        return await self.cache.get(Query("groups", "groups", 10.0, lambda c: c.groups()), wait_s)

    async def lag(self, groups: list[GroupView], snapshot: ClusterSnapshot, wait_s: float) -> Cached[Lag]:
        def read(client: DescribingClient) -> Lag:
            return read_lag(client, groups, snapshot, self.cache.peek("lag"))

        return await self.cache.get(Query("lag", "groups", 10.0, read), wait_s)

    async def group(self, name: str, snapshot: ClusterSnapshot, wait_s: float) -> Cached[GroupDetail]:
        query = Query("group", "details", 3.0, lambda c: read_group(c, name, snapshot), name)
        return await self.cache.get(query, wait_s)

    async def offsets(self, topic: str, snapshot: ClusterSnapshot, wait_s: float) -> Cached[Offsets]:
        views = snapshot.topics[topic].partitions[:PARTITIONS_MAX]
        led = [view for view in views if view.leader in snapshot.brokers]
        leaders = {TopicPartition(topic, view.partition): view.leader for view in led}

        def read(client: DescribingClient) -> Offsets:
            if not leaders:
                return Offsets({}, {})
            first, last = client.told_offsets(leaders, EARLIEST), client.told_offsets(leaders)
            reasons = [*first.untold.values(), *last.untold.values()]
            return Offsets(first.offsets, last.offsets, reasons[0] if reasons else None)

        return await self.cache.get(Query("offsets", "details", 3.0, read, topic), wait_s)

    async def transactions(self, topic: str, snapshot: ClusterSnapshot, wait_s: float) -> Cached[TopicTransactions]:
        views = snapshot.topics[topic].partitions[:PARTITIONS_MAX]
        led = [TopicPartition(topic, view.partition) for view in views if view.leader in snapshot.brokers]

        def read(client: DescribingClient) -> TopicTransactions:
            return read_transactions(client, led, self._clocks.wall_ms())

        return await self.cache.get(Query("transactions", "transactions", 10.0, read, topic), wait_s)

    async def gathered(self, snapshot: ClusterSnapshot, wait_s: float) -> Cached[Gathered]:
        """What findings need beside the snapshot."""

        def read(client: DescribingClient) -> Gathered:
            return gather(client, snapshot, self._clocks.wall_ms())

        return await self.cache.get(Query("findings", "findings", 60.0, read), wait_s)

    async def rights(self, topic: str, wait_s: float) -> Cached[TopicRights]:
        def read(client: DescribingClient) -> TopicRights:
            return read_rights(client, topic)

        return await self.cache.get(Query("rights", "rights", 15.0, read, topic), wait_s)

    async def old_groups(self, snapshot: ClusterSnapshot, wait_s: float) -> Cached[OldGroups]:
        """Groups in ZooKeeper; none where the connection names no ZooKeeper."""
        if self.settings.zookeeper is None:
            return Cached(OldGroups())

        def read(client: DescribingClient) -> OldGroups:
            znodes = self._connector.znodes(self._brief)
            try:
                return read_old_groups(znodes, client, snapshot)
            finally:
                znodes.close()

        return await self.cache.get(Query("old groups", "old groups", 30.0, read), wait_s)

    async def topic_configs(self, topic: str, wait_s: float) -> Cached[dict[str, ConfigValue]]:
        query = Query("topic configs", "details", 10.0, lambda c: c.topic_configs(topic), topic)
        return await self.cache.get(query, wait_s)

    async def broker_configs(self, broker: int, wait_s: float) -> Cached[dict[str, ConfigValue]]:
        query = Query("broker configs", "details", 10.0, lambda c: c.broker_configs(broker), str(broker))
        return await self.cache.get(query, wait_s)

    async def broker_defaults(self, wait_s: float) -> Cached[Told[Mapping[str, ConfigValue]]]:
        return await self.cache.get(Query("broker defaults", "details", 5.0, read_defaults), wait_s)

    async def acls(self, wait_s: float) -> Cached[Told[tuple[Acl, ...]]]:
        return await self.cache.get(Query("acls", "rights", 5.0, read_acls), wait_s)

    async def users(self, wait_s: float) -> Cached[Told[Users]]:
        return await self.cache.get(Query("users", "rights", 5.0, read_users), wait_s)

    async def quotas(self, wait_s: float) -> Cached[Told[tuple[Quota, ...]]]:
        return await self.cache.get(Query("quotas", "rights", 5.0, read_quotas), wait_s)

    def open_client(self) -> DescribingClient:
        """A client for who reads what is not kept here, such as records; the caller closes it."""
        return self._connector.cluster(self._brief)

    async def topic_check(self, change: TopicChange, wait_s: float) -> Cached[Verdict]:
        """Whether the brokers would take a change; they are asked again for every request, but for repeated ones."""
        query = Query("topic check", "topic check", 0.5, lambda c: check(c, change), repr(change), 8)
        return await self.cache.get(query, wait_s)

    async def broker_check(self, change: BrokerChange, wait_s: float) -> Cached[Verdict]:
        query = Query("broker check", "topic check", 0.5, lambda c: check_broker(c, change), repr(change), 8)
        return await self.cache.get(query, wait_s)

    async def witnessed(
        self, snapshot: ClusterSnapshot, topics: Iterable[str], brokers: Iterable[int], wait_s: float
    ) -> Cached[ClusterSnapshot]:
        """The snapshot with those of these topics and brokers, and of the brokers that have replicas, that only one
        broker does not know (presence.py): what a plan starts from."""
        expected = [TopicPartition(topic, 0) for topic in topics]
        named = frozenset(brokers)

        def read(client: DescribingClient) -> ClusterSnapshot:
            return with_holders(client, with_brokers(client, settled(client, snapshot, expected), named))

        about = repr((snapshot.taken_at_ms, expected, sorted(named)))
        return await self.cache.get(Query("witnesses", "plan", 2.0, read, about, 4), wait_s)

    async def plan(
        self, request: PlanRequest, snapshot: ClusterSnapshot, running: Running | None, sizes: Sizes, wait_s: float
    ) -> Cached[Document]:
        """The preview of a plan; it says when the bytes that it counts were read."""
        found = LogDirs(sizes.replicas, sizes.directories)

        def make(_: DescribingClient) -> Document:
            made = preview(request, snapshot, running, found, self.settings.disk_capacities, sizes.problems)
            return Document.plain(made | {"sizes_taken_at_ms": sizes.taken_ms})

        about = repr((request, snapshot.taken_at_ms, sizes.taken_ms))
        return await self.cache.get(Query("plan", "plan", 5.0, make, about, 4), wait_s)

    def _read_state(self, client: DescribingClient) -> ClusterState:
        before: ClusterState | None = self.cache.peek(STATE)
        epoch: ControllerEpoch | None = self.cache.peek(EPOCH)
        wall_ms, now_s = self._clocks.wall_ms(), self._clocks.monotonic()
        state = read_state(client, self.settings, before, self._history, epoch, wall_ms, now_s, self._moves)
        if before is not None and before.controller.id != state.controller.id:
            self.cache.expire(EPOCH)
        return state

    def _moves(self, newest: bool) -> Running | None:
        """The running reassignments as they were read last; `newest`: read after this call, if that is soon enough."""
        return self.cache.read_again(_MOVES, MOVES_S) if newest else self.cache.peek(_MOVES.name)

    def _read_epoch(self, _: DescribingClient) -> ControllerEpoch:
        asked_s = self._clocks.monotonic()
        ensemble = self._connector.ensemble(self._brief)
        try:
            view = ensemble.controller()
        finally:
            ensemble.close()
        return ControllerEpoch(view.holder, view.epoch, asked_s)


class CachedClusters:
    """By connection id; beyond CLUSTERS_MAX the least recently requested one is closed."""

    def __init__(self, connector: Connector, clocks: Clocks | None = None, idle_s: float = IDLE_S) -> None:
        self._connector, self._clocks, self._idle_s = connector, clocks, idle_s
        self._lock = threading.Lock()
        self._clusters: OrderedDict[str, CachedCluster] = OrderedDict()

    def cluster(self, conn_id: str, settings: ClusterSettings) -> CachedCluster:
        """The cluster behind a connection; a new one when the connection's settings have changed."""
        closed: list[CachedCluster] = []
        with self._lock:
            cluster = self._clusters.get(conn_id)
            if cluster is None or cluster.settings != settings:
                if cluster is not None:
                    closed.append(cluster)
                cluster = CachedCluster(settings, self._connector, self._clocks, self._idle_s)
                self._clusters[conn_id] = cluster
            self._clusters.move_to_end(conn_id)
            while len(self._clusters) > CLUSTERS_MAX:
                closed.append(self._clusters.popitem(last=False)[1])
        for old in closed:
            old.cache.close()
        return cluster

    def by_connection(self) -> dict[str, CachedCluster]:
        with self._lock:
            return dict(self._clusters)
