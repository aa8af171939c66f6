"""Catching up with the decisions of jobs that ran while a replica was away (docs/leases.md, "Replicas that were away").

The leader is asked for its decisions, and those that are missing are applied to the replica's log.

Rule 1: a decision counts as applied once the log's clean offset has reached its end; until then it is tried again.
Rule 2: it is applied only if the replica has committed all of its range: the high watermark has reached its end.
It runs with `log.cleaner.enable=false` too, because the decision was made elsewhere.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog

from logyard.broker import tasks
from logyard.broker.cleaner import own_run
from logyard.broker.cleaner.worker import CleaningWorker, WorkerDied
from logyard.broker.client.http_get import NoAnswer
from logyard.broker.clock import Clock
from logyard.broker.errors import CorruptData, StorageError
from logyard.broker.leases.book import CATCH_UP_RUN, LeaseError
from logyard.broker.leases.cleanable import cleanable_end_of
from logyard.broker.leases.service import LeaseService
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition

FIRST_LOOK_S = 1.0
LOOK_S_MAX = 60.0
LOGS_PER_TURN = 64

log = structlog.get_logger("logyard.cleaner")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CatchUpPorts:
    """What catching up works with.

    `leader_of` gives the leader of a partition that this broker follows in sync, None if it does not. `ask(broker id,
    path)` sends a GET to another broker and raises NoAnswer.
    """

    logs: Callable[[], list[PartitionLog]]
    find: Callable[[TopicPartition], PartitionLog | None]
    clean_offset: Callable[[PartitionLog], int]
    is_held: Callable[[TopicPartition], bool]
    leader_of: Callable[[TopicPartition], int | None]
    ask: Callable[[int, str], Awaitable[bytes]]
    lease_service: LeaseService
    clock: Clock
    open_worker: Callable[[], CleaningWorker]
    bytes_per_second: Callable[[], float]


class Offered(NamedTuple):
    """A decision that a leader keeps."""

    tp: TopicPartition
    leader: int
    range_end: int
    sha256: str


class CatchUp:
    """The catch-up loop, by the rules at the head of this file; a LeadershipListener of the replicas."""

    def __init__(self, ports: CatchUpPorts) -> None:
        self._ports = ports
        self._task: asyncio.Task[None] | None = None
        self._followed = asyncio.Event()
        self._wait_s = FIRST_LOOK_S
        self._refused: dict[TopicPartition, str] = {}

    # -- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask leaders for decisions from now on."""
        self._task = tasks.keep("catch up", self._run)

    async def close(self) -> None:
        """Stop, also while a decision is applied."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Nothing to do: a leader asks nobody."""

    def on_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Ask soon: there may be decisions to catch up with."""
        self._wait_s = FIRST_LOOK_S
        self._followed.set()

    def on_deleted(self, tp: TopicPartition) -> None:
        self._refused.pop(tp, None)

    async def _run(self) -> None:
        worker = self._ports.open_worker()
        try:
            while True:
                await self._rest()
                await self.look(worker)
                await worker.end()
        finally:
            await worker.end()

    async def _rest(self) -> None:
        """Wait twice as long each time, until a replica begins to follow."""
        self._followed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                await self._followed.wait()
            await asyncio.sleep(FIRST_LOOK_S)
        self._wait_s = min(2 * self._wait_s, LOOK_S_MAX)

    # -- looking --------------------------------------------------------------------------------------------

    async def look(self, worker: CleaningWorker) -> int:
        """Ask every leader once and apply what is missing here; returns how many decisions were worked on."""
        done = 0
        for leader in sorted(await self._leaders()):
            try:
                offers = _read_offers(leader, await self._ports.ask(leader, "/decisions"))
            except NoAnswer as error:
                log.info("a leader cannot be asked for decisions", leader=leader, reason=str(error))
                continue
            for offer in offers:
                try:
                    if self._is_missing(offer):
                        done += await self._catch_up(offer, worker)
                except Exception as bug:  # of one log; the others do not wait for it to be mended
                    tasks.failed("catch up", bug)
        return done

    async def _leaders(self) -> set[int]:
        leaders = set()
        for number, partition_log in enumerate(self._ports.logs(), start=1):
            if number % LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            leader = self._ports.leader_of(partition_log.tp) if partition_log.config.compacted else None
            if leader is not None:
                leaders.add(leader)
        return leaders

    def _is_missing(self, offer: Offered) -> bool:
        partition_log = self._ports.find(offer.tp)
        if partition_log is None or partition_log.failure is not None or not partition_log.config.compacted:
            return False
        if self._ports.leader_of(offer.tp) != offer.leader or self._ports.is_held(offer.tp):
            return False
        if self._refused.get(offer.tp) == offer.sha256 or partition_log.high_watermark < offer.range_end:
            return False
        clean_offset = self._ports.clean_offset(partition_log)
        reachable = min(offer.range_end, cleanable_end_of(partition_log, clean_offset, self._ports.clock.now_ms()))
        return clean_offset < reachable

    async def _catch_up(self, offer: Offered, worker: CleaningWorker) -> int:
        tp = offer.tp
        try:
            data = await self._ports.ask(offer.leader, f"/decisions/{quote(tp.topic, safe='')}/{tp.partition}")
            if hashlib.sha256(data).hexdigest() != offer.sha256:
                raise NoAnswer("the decision is not the one that was offered")
            worker.pace(self._ports.bytes_per_second())
            request = {"keys_max": 0, "decision": base64.b64encode(data).decode()}
            answer = await own_run.run(self._ports.lease_service, worker, tp, CATCH_UP_RUN, request)
        except CorruptData as error:
            self._refused[tp] = offer.sha256
            log.error("a decision cannot be applied", replica=str(tp), reason=str(error))
            return 0
        except (LeaseError, StorageError, WorkerDied, NoAnswer) as error:
            log.warning("a decision is not applied yet", replica=str(tp), reason=str(error))
            return 0
        log.info(
            "decision applied",
            replica=str(tp),
            leader=offer.leader,
            bytes=f"{answer['bytes_before']}→{answer['bytes_after']}",
            clean_offset=answer["clean_offset"],
            range_end=offer.range_end,
        )
        return 1


def _read_offers(leader: int, data: bytes) -> list[Offered]:
    """Read GET /decisions; raises NoAnswer."""
    try:
        return [_offered(leader, row) for row in json.loads(data)["decisions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise NoAnswer(f"the answer to GET /decisions does not parse: {error!r}") from error


def _offered(leader: int, row: Mapping[str, Any]) -> Offered:
    return Offered(
        TopicPartition(str(row["topic"]), int(row["partition"])), leader, int(row["range_end"]), str(row["sha256"])
    )
