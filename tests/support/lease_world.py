"""One broker's leases over real logs: a LogStore on a disk in memory (or a real one), replicas, the HTTP app.

    async with LeaseWorld() as world:  # broker 1; a disk and a topic's config may be given
        fill(world.lead(), 60)  # the log of t-0 gets 60 batches
        lease = await world.take()  # POST /leases, for a compaction
        decision, parts = await world.compaction(lease)  # what a job does with it
        await world.put_all(lease, parts)
        await world.ok("POST", f"/leases/{lease['lease_id']}/commit", commit_body(lease, decision, parts))

`call` speaks HTTP and returns (status, JSON), `ok` the JSON of what has to succeed, `refusal` the status and the name
of the error. `world.lead(leader_epoch=1)` is a new order of the controller; `before_work` runs before any work on the
disk, and may get in the way. `world.clock.advance(seconds)` lets leases expire.
"""

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Self

import httpx

from logyard.broker.clock import ManualClock
from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.config.topic import TopicConfig
from logyard.broker.http import routes
from logyard.broker.http.access import Access, everything
from logyard.broker.http.identities import OwnerOfTheFile
from logyard.broker.http.rights_table import OPEN_WHEN_PLAIN
from logyard.broker.leases import restart
from logyard.broker.leases.leases import LeasePorts
from logyard.broker.leases.service import LeaseService
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.store import LogStore, StoreSettings
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import ZERO_TOPIC_ID, BrokerInfo, Endpoint, TopicId, TopicPartition
from logyard.broker.records import batch
from logyard.broker.records.batch import Record
from logyard.broker.replication.events import LeaderAndIsr, LeaderAndIsrPartition, StopReplica, StopReplicaPartition
from logyard.broker.replication.replicas import Replicas
from logyard.broker.replication.settings import ReplicaSettings
from tests.support.whole_segments import rewrite_group, survey_segments

TOKEN = "t" * 64
ROOT = "/data"
TP = TopicPartition("t", 0)
DIRECTORY = f"{ROOT}/{TP}"
COMPACTED = TopicConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=2000, index_interval_bytes=300, file_delete_delay_ms=0
)


class _Timers:
    """Timers that never run by themselves."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Any:
        return asyncio.get_running_loop().call_later(3600, callback)


async def no_metrics() -> bytes:
    return b"metrics\n"


class LeaseWorld:
    """Broker 1. Use as `async with`; `call` speaks HTTP to it and returns (status, JSON)."""

    def __init__(
        self, disk: Disk | None = None, root: str = ROOT, config: TopicConfig = COMPACTED, *more_roots: str
    ) -> None:
        self.clock = ManualClock()
        self.disk = disk if disk is not None else MemoryDisk(self.clock.now_ms)
        self.root = root
        self.more_roots = more_roots
        self.config = config
        self.metadata = MetadataCache()
        self.before_work: Callable[[], None] = lambda: None
        self.ids = (f"{number:032x}" for number in itertools.count(1))

    async def _run_inline(self, work: Callable[[], Any]) -> Any:
        """Disk work, with a turn of the loop before and after it, so that others may get between."""
        await asyncio.sleep(0)
        self.before_work()
        result = work()
        await asyncio.sleep(0)
        return result

    def _run(self, work: Callable[[], Any]) -> Any:
        return asyncio.ensure_future(self._run_inline(work))

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.store = LogStore(
            StoreSettings(log_dirs=(self.root, *self.more_roots)),
            self.disk,
            self.clock,
            self._run,
            topic_config=lambda topic: self.config,
            on_offline=lambda path, gone: self.replicas.requests.take_offline(gone),
        )
        self.replicas = Replicas(
            ReplicaSettings(broker_id=1),
            logs=self.store.logs,
            metadata=self.metadata,
            topic_config=lambda topic: self.config,
            isr_changes=_NoChanges(),
            clock=self.clock,
            timers=loop,
            new_pending=loop.create_future,
            run_blocking=self._run,
            broker_epoch=lambda: 1,
        )
        self.ports = LeasePorts(
            self.store, self.replicas, self.metadata, self.disk, self.clock, _Timers(), self._run, self.ids.__next__
        )
        self.lease_service = LeaseService(self.ports, 1, "cluster")
        self.leases = self.lease_service.leases
        await self.store.load()
        await restart.restore(self.leases)
        access = Access(OwnerOfTheFile(TOKEN), everything, self.leases.book, open_routes=OPEN_WHEN_PLAIN)
        asgi = routes.build(self.lease_service, access, lambda: (True, {"status": "ready"}), no_metrics)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(asgi),
            base_url="http://broker",
            headers={"authorization": f"Bearer {TOKEN}"},
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()
        if exc[0] is None:
            await self.leases.close()
            await self.store.close()

    async def call(self, method: str, path: str, body: Any = None, **kwargs: Any) -> tuple[int, Any]:
        response = await self.http.request(method, path, json=body, **kwargs)
        return response.status_code, response.json()

    async def ok(self, method: str, path: str, body: Any = None, **kwargs: Any) -> Any:
        status, answer = await self.call(method, path, body, **kwargs)
        assert status < 300, answer
        return answer

    async def refusal(self, method: str, path: str, body: Any = None, **kwargs: Any) -> tuple[int, str]:
        status, answer = await self.call(method, path, body, **kwargs)
        return status, answer.get("error", "none")

    # -- replicas -------------------------------------------------------------------------------------------

    def lead(
        self, tp: TopicPartition = TP, leader_epoch: int = 0, leader: int = 1, topic_id: TopicId = ZERO_TOPIC_ID
    ) -> PartitionLog:
        """Have the controller say who leads; returns this broker's log."""
        brokers = tuple(BrokerInfo(n, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9090 + n),)) for n in (1, 2))
        update = PartitionUpdate(tp, leader, leader_epoch, (1, 2), (1, 2), partition_epoch=leader_epoch)
        self.metadata.apply_update(UpdateMetadata(1, 1, 1, (update,), brokers))
        order = LeaderAndIsrPartition(tp, leader, leader_epoch, (1, 2), (1, 2), partition_epoch=leader_epoch)
        ids = {} if topic_id == ZERO_TOPIC_ID else {tp.topic: topic_id}
        answer = self.replicas.requests.become_leader_or_follower(LeaderAndIsr(1, 1, 1, (order,), topic_ids=ids))
        assert not any(answer.partitions.values()), answer
        log = self.store.logs.get(tp)
        assert log is not None
        return log

    def delete(self, tp: TopicPartition = TP) -> None:
        self.replicas.requests.stop_replicas(StopReplica(1, 1, 1, (StopReplicaPartition(tp, -2, True),)))

    # -- the protocol ---------------------------------------------------------------------------------------

    async def take(self, purpose: str = "compact", run_id: str = "run", **fields: Any) -> Any:
        body = {"topic": TP.topic, "partition": TP.partition, "run_id": run_id, "purpose": purpose, **fields}
        return await self.ok("POST", "/leases", body)

    async def put(self, lease: Any, base: int, data: bytes, **headers: str) -> tuple[int, Any]:
        digest = {"x-content-sha256": hashlib.sha256(data).hexdigest(), **headers}
        path = f"/leases/{lease['lease_id']}/parts/{base}?generation={lease['generation']}"
        response = await self.http.put(path, content=data, headers=digest)
        return response.status_code, response.json()

    async def put_all(self, lease: Any, parts: Sequence[tuple[list[int], bytes]]) -> None:
        for bases, data in parts:
            status, answer = await self.put(lease, bases[0], data)
            assert status == 201, answer

    async def read(self, lease: Any, base: int, file: str = "log") -> bytes:
        response = await self.http.get(f"/leases/{lease['lease_id']}/segments/{base}/{file}")
        assert response.status_code == 200, response.text
        return response.content

    async def compaction(self, lease: Any, group_size: int = 2) -> tuple[Decision, list[tuple[list[int], bytes]]]:
        """Do what a job does with a lease: both passes over the leased segments, read by HTTP."""
        logs = {s["base_offset"]: memoryview(await self.read(lease, s["base_offset"])) for s in lease["segments"]}
        decision = survey_segments(
            logs.values(),
            Survey(
                TP.topic,
                TP.partition,
                lease["leader_epoch"],
                min(logs, default=0),
                lease["end_offset"],
                lease["now_ms"],
                lease["config"]["delete.retention.ms"],
                lease["clean_offset"],
                [
                    AbortedTransaction(a["producer_id"], a["first_offset"], a["last_offset"])
                    for a in lease["aborted_transactions"]
                ],
                {p["producer_id"]: ActiveProducer(p["last_offset"], p["producer_epoch"]) for p in lease["producers"]},
            ),
        )
        bases = list(logs)
        groups = [bases[at : at + group_size] for at in range(0, len(bases), group_size)]
        parts = [(g, b"".join(rewrite_group([logs[base] for base in g], decision, Tally()))) for g in groups]
        return decision, parts


def commit_body(lease: Any, decision: Decision, parts: Iterable[tuple[list[int], bytes]], **fields: Any) -> Any:
    """The commit that a job would send."""
    return {
        "generation": lease["generation"],
        "leader_epoch": lease["leader_epoch"],
        "clean_offset": decision.range_end,
        "decision": decision.summary(),
        "groups": [
            {
                "segments": bases,
                "part": {
                    "size": len(data),
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "last_offset": [h.last_offset for _, h in batch.iter_headers(data)][-1],
                    "records": sum(h.count for _, h in batch.iter_headers(data)),
                },
            }
            for bases, data in parts
        ],
        **fields,
    }


def fill(log: PartitionLog, batches: int, *, keys: int = 7, in_a_row: int = 1, now_ms: int = 1_600_000_000_000) -> None:
    """Append batches of three records over a few keys, each key `in_a_row` times, all of it committed."""
    for number in range(batches):
        records = [
            Record(at, now_ms + number, b"k%d" % ((number * 3 + at) // in_a_row % keys), b"v%05d" % (number * 3 + at))
            for at in range(3)
        ]
        log.append_as_leader(memoryview(batch.build(records, base_offset=0)), 0, now_ms=now_ms)
    log.set_high_watermark(log.log_end_offset)


def latest(data: bytes | memoryview) -> dict[bytes | None, bytes | None]:
    """Last value of each key: what compaction must not change."""
    found: dict[bytes | None, bytes | None] = {}
    view = memoryview(data)
    for position, header in batch.iter_headers(view):
        if header.count and not header.is_control:
            for record in batch.records(view, position):
                found[record.key] = record.value
    return found


async def in_pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


class _NoChanges:
    def submit(self, *args: Any, **kwargs: Any) -> None:
        """The ISR stays as it is."""


def lease_directories(world: LeaseWorld) -> list[str]:
    """What leases of partition 0 have put beside its segments."""
    leases = f"{DIRECTORY}/.leases"
    return [entry.name for entry in world.disk.list(leases)] if world.disk.exists(leases) else []


async def ready_to_commit(
    world: LeaseWorld, group_size: int = 2, topic_id: TopicId = ZERO_TOPIC_ID
) -> tuple[Any, Any, Any]:
    """A filled log, a lease on it, its compaction handed in; returns lease, commit body, parts."""
    fill(world.lead(topic_id=topic_id), 60)
    lease = await world.take()
    decision, parts = await world.compaction(lease, group_size)
    await world.put_all(lease, parts)
    return lease, commit_body(lease, decision, parts), parts
