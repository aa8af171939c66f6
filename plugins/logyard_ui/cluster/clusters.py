"""The clusters that somebody watches: for each one poll, whoever asks, and the parts that it is made of."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue, GroupView
from logyard.admin.connector import Connector
from logyard.admin.ports import EARLIEST, DescribingClient
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.cache.cache import Clocks, Found, Part, Poll
from logyard.plugins.logyard_ui.cache.worker import IDLE_S
from logyard.plugins.logyard_ui.cluster.controllers import ControllerHistory
from logyard.plugins.logyard_ui.cluster.lag import GroupDetail, Lag, read_group, read_lag
from logyard.plugins.logyard_ui.cluster.sizes import Sizes, read_sizes, sizes_json
from logyard.plugins.logyard_ui.cluster.state import EpochView, Seen, look
from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.views.plan import PlanQuestion, preview
from logyard.plugins.logyard_ui.views.reassignments import Progress, Running, read_progress

CLUSTERS_MAX = 32
PARTITIONS_MAX = 5_000
# A page is not worth a long wait: it is asked for again in a moment.
_REQUEST_S, _TOTAL_S = 3.0, 4.0

SNAPSHOT, MOVES, EPOCH = "snapshot", "moves", "epoch"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the partitions of a topic begin and end; those without a living leader are missing."""

    start: dict[TopicPartition, int]
    end: dict[TopicPartition, int]


class Cluster:
    """One cluster. Every method asks for one part and waits `wait_s` at most. They raise Busy."""

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
        self.poll = Poll(lambda: connector.cluster(brief), self._clocks, idle_s)

    async def seen(self, wait_s: float, topics: Iterable[str] = ()) -> Found[Seen]:
        """What was seen of the cluster lately; looked at again where one of these topics is not in it (yet)."""
        part = Part(SNAPSHOT, "snapshot", 2.0, self._look)
        found = await self.poll.get(part, wait_s)
        if found.value is None or found.value.snapshot.topics.keys() >= set(topics):
            return found
        return await self.poll.get_anew(part, wait_s)

    async def running(self, wait_s: float) -> Found[Running]:
        return await self.poll.get(Part(MOVES, "moves", 2.0, lambda c: c.list_reassignments()), wait_s)

    async def progress(self, running: Running, snapshot: ClusterSnapshot, wait_s: float) -> Found[Progress]:
        def ask(client: DescribingClient) -> Progress:
            return read_progress(client, running, snapshot, self.poll.peek("progress"), self._clocks.monotonic())

        return await self.poll.get(Part("progress", "moves", 4.0, ask), wait_s)

    async def epoch(self) -> None:
        """Have ZooKeeper asked for the controller's epoch, where the connection names one; nobody waits for it."""
        if self.settings.zookeeper is None:
            return
        seen: Seen | None = self.poll.peek(SNAPSHOT)
        known = seen is not None and bool(seen.controllers) and seen.controllers[0]["epoch"] is not None
        await self.poll.get(Part(EPOCH, "zookeeper", 30.0 if known else 3.0, self._ask_epoch), 0)

    async def sizes(self, snapshot: ClusterSnapshot, wait_s: float) -> Found[Sizes]:
        def ask(client: DescribingClient) -> Sizes:
            found = read_sizes(client, sorted(snapshot.brokers))
            content = {"taken_at_ms": self._clocks.wall_ms()} | sizes_json(found, snapshot)
            return replace(found, document=Document.plain(content))

        return await self.poll.get(Part("sizes", "sizes", 15.0, ask), wait_s)

    async def groups(self, wait_s: float) -> Found[list[GroupView]]:
        return await self.poll.get(Part("groups", "groups", 10.0, lambda c: c.groups()), wait_s)

    async def lag(self, groups: list[GroupView], snapshot: ClusterSnapshot, wait_s: float) -> Found[Lag]:
        names = [group.group_id for group in groups]

        def ask(client: DescribingClient) -> Lag:
            return read_lag(client, names, snapshot, self.poll.peek("lag"))

        return await self.poll.get(Part("lag", "groups", 10.0, ask), wait_s)

    async def group(self, name: str, snapshot: ClusterSnapshot, wait_s: float) -> Found[GroupDetail]:
        return await self.poll.get(Part("group", "details", 3.0, lambda c: read_group(c, name, snapshot), name), wait_s)

    async def offsets(self, topic: str, snapshot: ClusterSnapshot, wait_s: float) -> Found[Offsets]:
        views = snapshot.topics[topic].partitions[:PARTITIONS_MAX]
        led = [TopicPartition(topic, view.partition) for view in views if view.leader in snapshot.brokers]

        def ask(client: DescribingClient) -> Offsets:
            return Offsets(client.offsets(led, EARLIEST), client.offsets(led)) if led else Offsets({}, {})

        return await self.poll.get(Part("offsets", "details", 3.0, ask, topic), wait_s)

    async def topic_configs(self, topic: str, wait_s: float) -> Found[dict[str, ConfigValue]]:
        return await self.poll.get(
            Part("topic configs", "details", 10.0, lambda c: c.topic_configs(topic), topic), wait_s
        )

    async def broker_configs(self, broker: int, wait_s: float) -> Found[dict[str, ConfigValue]]:
        return await self.poll.get(
            Part("broker configs", "details", 10.0, lambda c: c.broker_configs(broker), str(broker)), wait_s
        )

    async def plan(
        self, question: PlanQuestion, snapshot: ClusterSnapshot, running: Running | None, sizes: Sizes, wait_s: float
    ) -> Found[Document]:
        return await self.poll.get(
            Part(
                "plan",
                "plan",
                5.0,
                lambda _: Document.plain(
                    preview(question, snapshot, running, sizes.replicas, self.settings.disk_capacities)
                ),
                repr(question),
                4,
            ),
            wait_s,
        )

    def _look(self, client: DescribingClient) -> Seen:
        before: Seen | None = self.poll.peek(SNAPSHOT)
        epoch: EpochView | None = self.poll.peek(EPOCH)
        seen = look(
            client, self.settings, before, self._history, epoch, self._clocks.wall_ms(), self._clocks.monotonic()
        )
        if before is not None and before.controller.id != seen.controller.id:
            self.poll.expire(EPOCH)
        return seen

    def _ask_epoch(self, _: DescribingClient) -> EpochView:
        asked_s = self._clocks.monotonic()
        ensemble = self._connector.ensemble(self._brief)
        try:
            view = ensemble.controller()
        finally:
            ensemble.close()
        return EpochView(view.holder, view.epoch, asked_s)


class Clusters:
    """By connection id; the one that was not asked for the longest goes when there are too many."""

    def __init__(self, connector: Connector, clocks: Clocks | None = None, idle_s: float = IDLE_S) -> None:
        self._connector, self._clocks, self._idle_s = connector, clocks, idle_s
        self._lock = threading.Lock()
        self._clusters: OrderedDict[str, Cluster] = OrderedDict()

    def cluster(self, conn_id: str, settings: ClusterSettings) -> Cluster:
        """The cluster behind a connection; another one when the connection's settings have changed."""
        gone: list[Cluster] = []
        with self._lock:
            cluster = self._clusters.get(conn_id)
            if cluster is None or cluster.settings != settings:
                if cluster is not None:
                    gone.append(cluster)
                cluster = self._clusters[conn_id] = Cluster(settings, self._connector, self._clocks, self._idle_s)
            self._clusters.move_to_end(conn_id)
            while len(self._clusters) > CLUSTERS_MAX:
                gone.append(self._clusters.popitem(last=False)[1])
        for old in gone:
            old.poll.close()
        return cluster

    def known(self) -> dict[str, Cluster]:
        with self._lock:
            return dict(self._clusters)
