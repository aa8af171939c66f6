"""The requests of docs/leases.md, for the HTTP routes and for the broker's own cleaner.

Logs and the book of leases are read on the event loop, work on the disk is done in threads, and the book is checked
again after every wait.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.errors import LogyardError, StorageError
from logyard.broker.leases import commits, grants, parts, persistence, replica_status
from logyard.broker.leases.book import OWN_RUNS, Lease, LeaseError, LeaseState, Purpose, lease_ended
from logyard.broker.leases.commit_records import CommitRecords
from logyard.broker.leases.decisions import KeptDecision, read_decision
from logyard.broker.leases.json_pieces import encoded
from logyard.broker.leases.leased_log import LeasedLog
from logyard.broker.leases.leases import LeasePorts, Leases
from logyard.broker.leases.quarantine import Quarantine
from logyard.broker.leases.requests import (
    AbortRequest,
    CommitRequest,
    GrantRequest,
    HeartbeatRequest,
    check_digest,
    invalid_request,
    reason_of,
)
from logyard.broker.leases.room import Room
from logyard.broker.leases.snapshot import FILES, LeasedSegment
from logyard.broker.log import layout
from logyard.broker.log.disk.port import remove_if_there
from logyard.broker.model import TopicPartition
from logyard.broker.portions import portions

# Small, because a piece is handed to the socket in one step, and nothing else is served in that time.
READ_PIECE_BYTES = 256 << 10

Json = dict[str, Any]


class LeaseService:
    """The requests. All methods are called on the event loop; they raise LeaseError and StorageError."""

    def __init__(self, ports: LeasePorts, broker_id: int, cluster_id: str) -> None:
        self._leases = Leases(ports, broker_id)
        self._run = ports.run_blocking
        self.cluster_id = cluster_id
        self.quarantines = Quarantine(self._leases)
        self._records = CommitRecords(ports)
        self._room = Room(self._usable)

    @property
    def leases(self) -> Leases:
        """The leases of this broker, to be started and closed."""
        return self._leases

    async def grant(self, body: Json) -> Json:
        """POST /leases."""
        return await grants.grant(self._leases, GrantRequest.read(body), self.cluster_id)

    async def granted_json(self, body: Json) -> list[bytes]:
        """POST /leases: the same as JSON, in pieces, for a job's run."""
        _require_job(body.get("run_id"))
        return await encoded(self._run, await self.grant(body))

    # -- living ---------------------------------------------------------------------------------------------

    async def heartbeat(self, lease_id: str, body: Json) -> Json:
        """POST /leases/{id}/heartbeat."""
        request = HeartbeatRequest.read(body)
        now_ms = self._leases.expire_due()
        lease = self._leases.book.find_active(lease_id, request.generation)
        self._leases.leased_log(lease)
        self._leases.book.renew(lease, now_ms, request.ttl_ms)
        leased, partition = self._leases.leased_replica(lease)
        return {
            "lease_id": lease_id,
            "generation": lease.generation,
            "state": lease.state.value,
            "expires_at_ms": lease.expires_at_ms,
            "leader_epoch": partition.leader_epoch,
            "high_watermark": leased.log.high_watermark,
        }

    async def leases_json(self, run_id: str | None, sees: Callable[[str], bool]) -> list[bytes]:
        """GET /leases, of the topics that the caller sees, as JSON in pieces."""
        self._leases.expire_due()
        rows: list[Json] = []
        async for portion in portions(self._leases.book):
            seen = (lease for lease in portion if run_id in (None, lease.run_id) and sees(lease.tp.topic))
            rows += [lease.summary(self._leases.broker_id) for lease in seen]
        return await encoded(self._run, {"leases": rows})

    def show(self, lease_id: str) -> Json:
        """GET /leases/{id}."""
        self._leases.expire_due()
        return self._leases.remembered(lease_id).summary(self._leases.broker_id)

    async def abort(self, lease_id: str, body: Json) -> Json:
        """POST /leases/{id}/abort."""
        request = AbortRequest.read(body)
        now_ms = self._leases.expire_due()
        if self._leases.remembered(lease_id).living:
            self._leases.book.abort(self._leases.book.find_active(lease_id, request.generation), request.reason, now_ms)
        return self.show(lease_id)

    def read(
        self, lease_id: str, base_offset: int, file: str, byte_range: tuple[int, int | None] | None
    ) -> tuple[int, int, int, AsyncIterator[bytes]]:
        """GET /leases/{id}/segments/{base_offset}/{file}: returns (start, end, leased size, pieces)."""
        now_ms = self._leases.expire_due()
        lease = self._leases.book.find_active(lease_id)
        segment = (leased := self._leases.leased_log(lease)).segment(base_offset)
        size = segment.files.get(file)
        if size is None:
            raise LeaseError("unknown_segment", 404, f"segment {base_offset} has no leased file {file!r}")
        start, end = 0, size
        if byte_range is not None:
            start, wanted_end = byte_range
            end = size if wanted_end is None else min(wanted_end, size)
            if not start < end:
                raise LeaseError("range_wanted", 416, f"{file} of segment {base_offset} has {size} leased bytes")
        self._leases.book.renew(lease, now_ms)
        path = f"{leased.links_directory}/{layout.file_name(base_offset, FILES[file])}"
        return start, end, size, self._pieces(lease, path, start, end)

    async def _pieces(self, lease: Lease, path: str, start: int, end: int) -> AsyncIterator[bytes]:
        if start == end:
            return
        file = await self._run(partial(self._leases.ports.disk.open, path))
        while start < end:
            piece = await self._run(partial(file.read_at, min(READ_PIECE_BYTES, end - start), start))
            if not piece:
                # The log was truncated: the lease is lost, and the client must not take fewer bytes for the whole.
                raise StorageError(f"{path}: ends at {start}, {end} was leased")
            if lease.state is LeaseState.ACTIVE:
                self._leases.book.renew(lease, self._leases.ports.clock.now_ms())
            yield piece
            start += len(piece)

    # -- parts ----------------------------------------------------------------------------------------------

    async def put_part(
        self,
        lease_id: str,
        base_offset: int,
        generation: int,
        size: int,
        sha256: str,
        chunks: AsyncIterator[bytes],
    ) -> tuple[bool, Json]:
        """PUT /leases/{id}/parts/{base_offset}: returns whether it is new, and the answer."""
        self._leases.expire_due()
        lease = self._leases.book.find_active(lease_id, generation)
        leased, _ = self._leases.leased_replica(lease)
        _require_job(lease.run_id)
        if lease.purpose is not Purpose.COMPACT:
            raise invalid_request(f"parts belong to compact leases, this one is for {lease.purpose.value}")
        check_digest("X-Content-SHA256", sha256)
        allowed = parts.bytes_allowed(leased.from_segment(base_offset))
        if size > allowed:
            raise LeaseError(
                "too_large", 413, f"part {base_offset}: {size} bytes, {allowed} at most", base_offset=base_offset
            )
        async with self._room.promised(leased.log.directory, size) as written:
            received = await self._receive(leased, base_offset, (size, sha256), chunks, written)
        known = leased.parts.get(base_offset)
        leased.parts[base_offset] = received
        return known != received, {"base_offset": base_offset, "size": size, "sha256": sha256}

    async def _receive(
        self,
        leased: LeasedLog,
        base_offset: int,
        expected: tuple[int, str],
        chunks: AsyncIterator[bytes],
        written: Callable[[int], None],
    ) -> tuple[int, str]:
        lease_id, generation = leased.lease.lease_id, leased.lease.generation

        def alive() -> None:
            self._leases.book.renew(self._leases.book.find_active(lease_id, generation), self._leases.expire_due())

        leased.parts_received += 1
        path = parts.part_path(leased.parts_directory, base_offset)
        aside = f"{path}.{leased.parts_received}.tmp"
        try:
            disk = self._leases.ports.disk
            received = await parts.receive(self._run, disk, aside, expected[0], chunks, alive, written)
            alive()
            if received != expected:
                raise parts.bad_part(base_offset, f"{received[0]} bytes with sha256 {received[1]} arrived")
            placing = self._leases.spawn(self._place(aside, path))
            leased.placing.add(placing)
            placing.add_done_callback(leased.placing.discard)
            if not await asyncio.shield(placing):
                raise FileNotFoundError(path)
        except FileNotFoundError:
            self._leases.book.find_active(lease_id, generation)
            raise
        finally:
            await self._run(partial(remove_if_there, self._leases.ports.disk, aside))
        return received

    async def _place(self, aside: str, path: str) -> bool:
        """Put a part in its place, even if its sender is gone; return whether the lease's directory was still there."""
        try:
            await self._run(partial(self._leases.ports.disk.rename, aside, path))
        except FileNotFoundError:
            return False
        return True

    async def _usable(self, path: str) -> int:
        _total, usable = await self._run(partial(self._leases.ports.disk.space, path))
        return int(usable)

    # -- committing -----------------------------------------------------------------------------------------

    async def commit_of_job(self, lease_id: str, body: Json) -> Json:
        """POST /leases/{id}/commit."""
        _require_job(self._leases.remembered(lease_id).run_id)
        return await self.commit(lease_id, body)

    async def commit(self, lease_id: str, body: Json) -> Json:
        """Commit, to the end even if the caller stops waiting."""
        request = await CommitRequest.read(body)
        self._leases.expire_due()
        lease = self._leases.remembered(lease_id)
        if lease.state is LeaseState.COMMITTED and lease.generation == request.generation:
            if lease.decision_sha256 != request.decision_sha256 or lease.result is None:
                raise lease_ended(lease)
            return lease.result
        leased, _ = self._leases.leased_replica(self._leases.book.find_active(lease_id, request.generation))
        if lease.purpose is not Purpose.COMPACT:
            raise invalid_request(f"only a compact lease can be committed, this one is for {lease.purpose.value}")
        if request.range_end > lease.end_offset:
            raise invalid_request(
                f"decision.range_end {request.range_end} lies above the lease's end {lease.end_offset}"
            )
        members = leased.members(request.groups)
        decision = None if request.decision is None else read_decision(request.decision, request, lease.tp)
        commits.check_fence(self._leases, leased, request)
        self._leases.book.begin_commit(lease, request.decision_sha256)
        answer: Json = await asyncio.shield(self._leases.spawn(self._commit(leased, request, members, decision)))
        return answer

    async def _commit(
        self, leased: LeasedLog, request: CommitRequest, members: list[list[LeasedSegment]], decision: bytes | None
    ) -> Json:
        lease, begun_in = leased.lease, leased.log
        ports = self._leases.ports
        record = persistence.committing(
            [group.segments for group in request.groups], request.decision_sha256, commits.answer(request, members)
        )

        def swapped() -> None:
            lease.swapped = True

        async def save_clean_offset(offset: int) -> None:
            if self._records.is_here(leased):
                await self._records.store(leased, lambda: ports.store.set_cleaner_offset(lease.tp, offset))

        try:
            if leased.placing:
                # A part that was sent twice may be on its way to the disk: not between the check and the swap.
                await asyncio.wait(leased.placing)
            await self._room.want(leased.log.directory, sum(group.size for group in request.groups) // 64)
            fence = partial(commits.check_fence, self._leases, leased, request)
            begun = partial(self._records.write_begun, leased, record, decision)
            result = await commits.carry_out(
                self._run, leased, request, members, fence, begun, swapped, save_clean_offset
            )
            if decision is not None and leased.log is not begun_in:
                await self._records.store(
                    leased, lambda: self._run(partial(self._records.write_decision, leased, decision))
                )
            if decision is not None and self._records.is_here(leased):
                self._leases.decisions[lease.tp] = KeptDecision.of(Decision.decode_head(decision), decision)
            if lease.run_id not in OWN_RUNS:  # those never repeat a commit
                written = partial(self._records.write_answer, leased, result, ports.clock.now_ms())
                await self._records.store(leased, lambda: self._run(written))
        except (LogyardError, FileNotFoundError, commits.SegmentChanged) as error:
            raise self._commit_failed(lease, error) from error
        except Exception as bug:
            # Otherwise it would be "committing" for ever: its log could never be cleaned or shortened again.
            self._leases.book.abort(lease, f"the commit failed: {bug!r}", ports.clock.now_ms())
            raise
        self._leases.book.committed(lease, result, self._leases.ports.clock.now_ms())
        return result

    def _commit_failed(self, lease: Lease, error: Exception) -> Exception:
        """Change the lease's state after a failed commit; returns the error for the client."""
        now_ms = self._leases.ports.clock.now_ms()
        if isinstance(error, commits.SegmentChanged):
            self._leases.book.lose(lease, f"segment {error} is not the one that was leased", now_ms)
        if not lease.living and not isinstance(error, StorageError):
            return lease_ended(lease)
        if isinstance(error, LeaseError) and error.code != "storage":
            self._leases.book.refuse_commit(lease, now_ms)
            return error
        self._leases.book.abort(lease, f"storage: {error}", now_ms)
        return error if isinstance(error, LogyardError) else StorageError(f"a file of the lease is gone: {error}")

    # -- statuses -------------------------------------------------------------------------------------------

    async def partitions_json(self, sees: Callable[[str], bool], sees_cluster: bool) -> list[bytes]:
        """GET /partitions, of the topics that the caller sees, as JSON in pieces."""
        told = await self._partitions(sees)
        if not sees_cluster:
            told |= {"log_dirs": [], "strays": []}
        return await encoded(self._run, told)

    async def _partitions(self, sees: Callable[[str], bool]) -> Json:
        ports = self._leases.ports
        rows: list[Json] = []

        def cost(tp: TopicPartition) -> int:
            return replica_status.cost_of(ports.store.logs.get(tp))

        async for portion in portions(list(ports.replicas.partitions()), cost):
            for tp in portion:
                with suppress(LeaseError):  # it was deleted meanwhile, or its directory failed
                    rows += [self._status(tp)] if sees(tp.topic) else []
        online = ports.store.online_directories
        found: list[str] = []
        for path in online:
            found += await self._run(partial(replica_status.directories_in, ports.disk, path))
        return {
            "broker_id": self._leases.broker_id,
            "cluster_id": self.cluster_id,
            "now_ms": ports.clock.now_ms(),
            "log_dirs": [{"path": path, "online": path in online} for path in ports.store.log_dirs],
            "partitions": rows,
            "strays": await replica_status.strays(
                found, [*ports.store.logs.all_current(), *ports.store.logs.all_futures()], self._leases.is_ours
            ),
        }

    async def quarantine(self, topic: str, partition: int, body: Json) -> Json:
        """POST /partitions/{topic}/{partition}/quarantine."""
        return await self.quarantines.set_aside(TopicPartition(topic, partition), reason_of(body))

    async def partition(self, topic: str, partition: int) -> Json:
        """GET /partitions/{topic}/{partition}."""
        return self._status(TopicPartition(topic, partition))

    def _status(self, tp: TopicPartition) -> Json:
        partition, log = self._leases.replica(tp)
        row = replica_status.status_of(log, self._leases.clean_offset(log), self._leases.ports.store.checkpointed(tp))
        return row | self._leases.leadership(partition)

    # -- decisions ------------------------------------------------------------------------------------------

    async def decisions_json(self) -> list[bytes]:
        """GET /decisions, as JSON in pieces."""
        rows: list[Json] = []
        async for portion in portions(list(self._leases.decisions.items())):
            rows += [decision.to_json(tp) for tp, decision in portion if self._leads(tp)]
        return await encoded(self._run, {"decisions": rows})

    async def decision(self, topic: str, partition: int) -> tuple[bytes, str]:
        """GET /decisions/{topic}/{partition}: returns the bytes and their SHA-256."""
        tp = TopicPartition(topic, partition)
        kept, log = self._leases.decisions.get(tp), self._leases.ports.store.logs.get(tp)
        data = None
        if kept is not None and log is not None and self._leads(tp):
            read = partial(persistence.read_decision, self._leases.ports.disk, f"{log.directory}/{layout.LEASES}")
            data = await self._run(read)
        if data is None or kept is None:
            raise LeaseError(
                "unknown_decision", 404, f"broker {self._leases.broker_id} has no decision of {tp} to give"
            )
        return data, hashlib.sha256(data).hexdigest()

    def _leads(self, tp: TopicPartition) -> bool:
        partition = self._leases.ports.replicas.partition(tp)
        return partition is not None and partition.is_leader


def _require_job(run_id: Any) -> None:
    """Raise LeaseError(invalid_request) for the broker's own runs: their parts are not checked, nor do they outlive the
    broker."""
    if isinstance(run_id, str) and run_id in OWN_RUNS:
        raise invalid_request(f"run_id: {run_id!r} is the broker's own run")
