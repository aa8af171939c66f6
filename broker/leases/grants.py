"""Granting a lease: read the log on the event loop, make the links in a thread, answer (docs/leases.md, POST /leases).

If the log was truncated or compacted while it was linked, it is tried again, ATTEMPTS times in all.
"""

from functools import partial
from typing import Any

import structlog

from logyard.broker.leases import persistence
from logyard.broker.leases.book import LeaseError, Purpose, lease_ended
from logyard.broker.leases.leased_log import LeasedLog
from logyard.broker.leases.leases import Leases
from logyard.broker.leases.requests import GrantRequest
from logyard.broker.leases.snapshot import LeasedSegment, LogSnapshot, link, producers_of
from logyard.broker.log import layout
from logyard.broker.records import pauses

ATTEMPTS = 5

log = structlog.get_logger("logyard.leases")


async def grant(leases: Leases, request: GrantRequest, cluster_id: str) -> dict[str, Any]:
    """Grant a lease and return the answer of POST /leases; raises LeaseError and StorageError."""
    attempts = 0
    while True:
        attempts += 1
        leased, snapshot = _begin(leases, request)
        answer = await _set_up(leases, leased, snapshot)
        if answer is not None:
            return answer | {"cluster_id": cluster_id}
        leases.book.abort(leased.lease, "the log changed while it was linked", leases.expire_due())
        if attempts == ATTEMPTS:
            raise lease_ended(leased.lease)


def _begin(leases: Leases, request: GrantRequest) -> tuple[LeasedLog, LogSnapshot]:
    """Add the lease to the book and read the log; from now on retention skips the segments of a compact lease."""
    now_ms = leases.expire_due()
    partition, replica = leases.replica(request.tp)
    replica.check_usable()
    if request.purpose is Purpose.COMPACT and not replica.config.compacted:
        raise LeaseError("not_compacted", 409, f"{request.tp}: its cleanup.policy has no compact")
    if request.purpose is Purpose.COMPACT and replica.is_moving:
        raise LeaseError("moving", 409, f"{request.tp} is moving to another log directory: try later")
    leases.book.admit(request.tp, request.run_id, request.purpose, now_ms)
    snapshot = LogSnapshot.of(replica, request.purpose, leases.clean_offset(replica), now_ms)
    covered = snapshot.segments[-1].end_offset if snapshot.segments else snapshot.end_offset
    lease = leases.book.grant(
        leases.ports.new_id(),
        request.tp,
        request.run_id,
        request.purpose,
        leader_epoch=partition.leader_epoch,
        end_offset=snapshot.end_offset,
        log_end_offset=max(covered, snapshot.end_offset),
        ttl_ms=request.ttl_ms,
        now_ms=now_ms,
    )
    lease.topic_id = replica.topic_id
    leased = LeasedLog(lease, replica, f"{replica.directory}/{layout.LEASES}/{lease.lease_id}")
    leases.add(leased)
    if request.purpose is Purpose.COMPACT:
        replica.segments.hold(lease.lease_id, [segment.base_offset for segment in snapshot.segments])
    snapshot.fields.update(leases.leadership(partition), now_ms=now_ms)
    return leased, snapshot


async def _set_up(leases: Leases, leased: LeasedLog, snapshot: LogSnapshot) -> dict[str, Any] | None:
    """Make the links and return the answer; None if the log has changed since the snapshot."""
    lease = leased.lease
    try:
        segments, aborted, producers = await leases.ports.run_blocking(partial(_link, leases, leased, snapshot))
    except FileNotFoundError:
        segments = None
    except BaseException:
        leases.book.abort(lease, "its links could not be made", leases.expire_due())
        leases.remove_directory(leased)
        raise
    if segments is None or not lease.living or not snapshot.is_current(leased.log):
        leases.remove_directory(leased)
        return None
    leased.is_set_up = True
    log.info(
        "lease granted",
        lease=lease.lease_id,
        replica=str(lease.tp),
        run=lease.run_id,
        purpose=lease.purpose.value,
        segments=len(segments),
        end_offset=lease.end_offset,
    )
    leases.book.renew(lease, leases.ports.clock.now_ms())
    return snapshot.fields | {
        "lease_id": lease.lease_id,
        "generation": lease.generation,
        "state": lease.state.value,
        "run_id": lease.run_id,
        "purpose": lease.purpose.value,
        "topic": lease.tp.topic,
        "partition": lease.tp.partition,
        "broker_id": leases.broker_id,
        "expires_at_ms": lease.expires_at_ms,
        "end_offset": snapshot.end_offset,
        "links_dir": leased.links_directory,
        "parts_dir": leased.parts_directory,
        "segments": [segment.to_json() for segment in segments],
        "producers": producers,
        "aborted_transactions": aborted,
    }


def _link(
    leases: Leases, leased: LeasedLog, snapshot: LogSnapshot
) -> tuple[list[LeasedSegment], list[dict[str, int]], list[dict[str, int]]]:
    """Make the links, then the record: a lease with a record has all its links. Waits for the disk.

    Returns the segments, and the aborted transactions and producers of the answer, of which there may be many.
    """
    segments, aborted = link(leases.ports.disk, snapshot, leased.directory)
    leased.note_segments(segments)
    persistence.write_record(leases.ports.disk, leased)
    return segments, [entry._asdict() for entry in pauses.PausingList(aborted)], producers_of(snapshot)
