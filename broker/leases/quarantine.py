"""Setting a damaged follower aside (docs/leases.md, POST /partitions/{topic}/{partition}/quarantine).

The replica leaves the ISR, its directory is renamed and kept, and all of it is fetched again from the leader.

Rule 1: never the leader's replica, and never one without which the ISR would be smaller than min.insync.replicas.
Rule 2: a replica in the ISR counts for acknowledged records, and may be elected. It is not changed before its leader
has removed it from the ISR: the follower stops appending and shows the leader that it lags.
"""

import asyncio
from typing import Any

import structlog

from logyard.broker.leases.book import LeaseError
from logyard.broker.leases.leases import Leases
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import NO_LEADER, TopicPartition
from logyard.broker.replication.partition import Partition

LOOK_S = 0.1
# How long the ISR has to be without the replica: a pending change of the ISR is known by then.
SETTLE_S = 5.0
SPARE_S = 15.0

log = structlog.get_logger("logyard.quarantine")


class Quarantine:
    """Sets replicas of this broker aside."""

    def __init__(self, leases: Leases, settle_s: float = SETTLE_S) -> None:
        self._leases = leases
        self._settle_s = settle_s
        self._under_way: set[TopicPartition] = set()

    async def set_aside(self, tp: TopicPartition, reason: str) -> dict[str, Any]:
        """Set a replica aside, even if the caller stops waiting; returns where the files are kept.

        Raises LeaseError (`is_leader`, `no_leader`, `moving`, `needed_in_isr`, `quarantine_in_progress`,
        `still_in_isr`) and StorageError.
        """
        if tp in self._under_way:
            raise LeaseError("quarantine_in_progress", 409, f"{tp} is being set aside already")
        self._check(tp)
        damaged = self._leases.replica(tp)[1]
        self._under_way.add(tp)
        answer: dict[str, Any] = await asyncio.shield(self._leases.spawn(self._work(damaged, reason)))
        return answer

    async def _work(self, damaged: PartitionLog, reason: str) -> dict[str, Any]:
        tp, replicas = damaged.tp, self._leases.ports.replicas
        log.info("a replica will be set aside once it is out of the ISR", replica=str(tp), reason=reason)
        try:
            await self._leave_isr(damaged)
            partition = self._check(tp, damaged)
            leader = partition.leader
            kept = replicas.requests.set_aside(tp)
        except BaseException:
            replicas.requests.follow_again(tp)
            raise
        finally:
            self._under_way.discard(tp)
        log.info("a replica was set aside", replica=str(tp), kept=kept, leader=leader)
        return {"topic": tp.topic, "partition": tp.partition, "kept": kept, "leader": leader}

    async def _leave_isr(self, damaged: PartitionLog) -> None:
        """Let the replica lag, and wait until the leader has removed it from the ISR."""
        tp, ports = damaged.tp, self._leases.ports
        begun = out_since = ports.clock.monotonic()
        patience = ports.replicas.settings.lag_time_max_ms / 1000 * 2 + self._settle_s + SPARE_S
        while True:
            self._check(tp, damaged)
            ports.replicas.requests.leave_isr(tp)
            now = ports.clock.monotonic()
            if self._leases.broker_id in self._isr(tp):
                out_since = now
            elif now - out_since >= self._settle_s:
                return
            if now - begun > patience:
                raise LeaseError("still_in_isr", 409, f"{tp}: still in the ISR after {patience:.0f} s, try again")
            await asyncio.sleep(LOOK_S)

    def _check(self, tp: TopicPartition, damaged: PartitionLog | None = None) -> Partition:
        """Return the partition if its replica may be set aside, and still is the `damaged` one; raises LeaseError."""
        partition, replica = self._leases.replica(tp)
        if damaged not in (None, replica):
            raise LeaseError("unknown_partition", 404, f"{tp}: the replica is gone, another has its name now")
        replica.check_usable()
        known = self._leases.ports.metadata.partition(tp)
        me = self._leases.broker_id
        if partition.is_leader or (known is not None and known.leader == me):
            raise LeaseError("is_leader", 409, f"{tp}: this replica is the leader; let another one lead first")
        if known is None or known.leader == NO_LEADER or partition.leader != known.leader:
            raise LeaseError("no_leader", 409, f"{tp}: no leader is known to fetch it from, try again")
        if replica.is_moving:
            raise LeaseError("moving", 409, f"{tp} is moving to another log directory: try later")
        others = [broker for broker in known.isr if broker != me]
        if len(others) < partition.min_isr or known.leader not in others:
            raise LeaseError(
                "needed_in_isr",
                409,
                f"{tp}: the ISR without this replica is {others}, min.insync.replicas is {partition.min_isr}",
            )
        return partition

    def _isr(self, tp: TopicPartition) -> list[int]:
        known = self._leases.ports.metadata.partition(tp)
        return [] if known is None else list(known.isr)
