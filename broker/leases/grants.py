"""Taking a lease: one moment of the log on the event loop, the links in a thread, the answer (docs/leases.md).

Where the log was cut while it was linked, the lease is taken again.
"""

from functools import partial
from typing import Any

import structlog

from logyard.broker.leases import persistence
from logyard.broker.leases.book import LeaseError, Purpose, ended
from logyard.broker.leases.leased_log import Holding
from logyard.broker.leases.leases import HeldLeases
from logyard.broker.leases.requests import TakeRequest
from logyard.broker.leases.snapshot import LeasedSegment, Moment, link
from logyard.broker.log import layout
from logyard.broker.log.segment.index import AbortedTxn

ATTEMPTS = 5

log = structlog.get_logger("logyard.leases")


async def take(leases: HeldLeases, request: TakeRequest, cluster_id: str) -> dict[str, Any]:
    """Give out a lease; raises LeaseError and StorageError."""
    attempts = 0
    while True:
        attempts += 1
        holding, moment = _begin(leases, request)
        answer = await _set_up(leases, holding, moment)
        if answer is not None:
            return answer | {"cluster_id": cluster_id}
        leases.book.abort(holding.lease, "the log changed while it was linked", leases.now())
        if attempts == ATTEMPTS:
            raise ended(holding.lease)


def _begin(leases: HeldLeases, request: TakeRequest) -> tuple[Holding, Moment]:
    """Enter the lease and note the moment; from here on retention leaves a compact lease's segments alone."""
    now_ms = leases.now()
    partition, replica = leases.replica(request.tp)
    replica.check_usable()
    if request.purpose is Purpose.COMPACT and not replica.config.compacted:
        raise LeaseError("not_compacted", 409, f"{request.tp}: cleanup.policy has no compact")
    if request.purpose is Purpose.COMPACT and replica.is_moving:
        raise LeaseError("moving", 409, f"{request.tp}: is moving to another log directory")
    leases.book.admit(request.tp, request.run_id, request.purpose, now_ms)
    moment = Moment.of(replica, request.purpose, leases.clean_offset(replica), now_ms)
    covered = moment.segments[-1].end_offset if moment.segments else moment.end_offset
    lease = leases.book.open(
        leases.ports.new_id(),
        request.tp,
        request.run_id,
        request.purpose,
        leader_epoch=partition.leader_epoch,
        end_offset=moment.end_offset,
        log_end_offset=max(covered, moment.end_offset),
        ttl_ms=request.ttl_ms,
        now_ms=now_ms,
    )
    holding = Holding(lease, replica, f"{replica.directory}/{layout.LEASES}/{lease.lease_id}")
    leases.add(holding)
    if request.purpose is Purpose.COMPACT:
        replica.hold(lease.lease_id, [segment.base_offset for segment in moment.segments])
    moment.fields.update(leases.leadership(partition), now_ms=now_ms)
    return holding, moment


async def _set_up(leases: HeldLeases, holding: Holding, moment: Moment) -> dict[str, Any] | None:
    """Make the links; None where the log is not any more what `moment` saw."""
    lease = holding.lease
    try:
        segments, aborted = await leases.ports.run_blocking(partial(_link, leases, holding, moment))
    except FileNotFoundError:
        segments = None
    except BaseException:
        leases.book.abort(lease, "its links could not be made", leases.now())
        leases.remove_directory(holding)
        raise
    if segments is None or not lease.living or not moment.stands(holding.log):
        leases.remove_directory(holding)
        return None
    holding.is_set_up = True
    log.info(
        "lease taken",
        lease=lease.lease_id,
        replica=str(lease.tp),
        run=lease.run_id,
        purpose=lease.purpose.value,
        segments=len(segments),
        end_offset=lease.end_offset,
    )
    leases.book.beat(lease, leases.ports.clock.now_ms())
    return moment.fields | {
        "lease_id": lease.lease_id,
        "generation": lease.generation,
        "state": lease.state.value,
        "run_id": lease.run_id,
        "purpose": lease.purpose.value,
        "topic": lease.tp.topic,
        "partition": lease.tp.partition,
        "broker_id": leases.broker_id,
        "expires_at_ms": lease.expires_at_ms,
        "end_offset": moment.end_offset,
        "links_dir": holding.links_directory,
        "parts_dir": holding.parts_directory,
        "segments": [segment.to_json() for segment in segments],
        "aborted_transactions": [entry._asdict() for entry in aborted],
    }


def _link(leases: HeldLeases, holding: Holding, moment: Moment) -> tuple[list[LeasedSegment], list[AbortedTxn]]:
    """Make the links and the record, in this order: what has a record is whole. Waits for the disk."""
    segments, aborted = link(leases.ports.disk, moment, holding.directory)
    holding.note_segments(segments)
    persistence.write_record(leases.ports.disk, holding)
    return segments, aborted
