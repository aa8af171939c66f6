"""Taking up at the start what was on disk of leases and decisions (docs/leases.md, "A restart")."""

from collections.abc import Sequence
from functools import partial

import structlog

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.errors import CorruptData, StorageError
from logyard.broker.leases import persistence
from logyard.broker.leases.book import OWN_RUNS, REMEMBERED_MS, Lease, LeaseState, Purpose
from logyard.broker.leases.decisions import KeptDecision
from logyard.broker.leases.leased_log import LeasedLog
from logyard.broker.leases.leases import Leases
from logyard.broker.leases.persistence import Found, Shelf
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.partition_log import PartitionLog

LOGS_TOGETHER = 256

log = structlog.get_logger("logyard.leases")


async def restore(leases: Leases) -> None:
    """Know again what outlived the last run; once the logs are loaded, before anything is deleted from them."""
    logs = list(leases.ports.store.all_logs())
    for at in range(0, len(logs), LOGS_TOGETHER):
        group = logs[at : at + LOGS_TOGETHER]
        shelves = await leases.ports.run_blocking(partial(_read, leases.ports.disk, [kept.directory for kept in group]))
        for kept, shelf in zip(group, shelves, strict=True):
            try:
                await _take_up(leases, kept, shelf)
            except StorageError as error:
                log.warning("leases are not taken up again", replica=str(kept.tp), error=str(error))


def _read(disk: Disk, directories: Sequence[str]) -> list[Shelf]:
    shelves = []
    for directory in directories:
        try:
            shelves.append(persistence.read_shelf(disk, directory))
        except StorageError:
            shelves.append(Shelf())  # its directory goes offline, and its logs with it
    return shelves


async def _take_up(leases: Leases, kept: PartitionLog, shelf: Shelf) -> None:
    directory = f"{kept.directory}/{layout.LEASES}"
    leftovers = list(shelf.leftovers)
    compacting = False
    for found in sorted(shelf.leases, key=lambda found: -found.lease.generation):
        lease, path = found.lease, f"{directory}/{found.lease.lease_id}"
        leased = LeasedLog(lease, kept, path)
        leased.take_in(found.segments)
        if lease.tp != kept.tp:
            leftovers.append(path)
        elif lease.state is LeaseState.COMMITTED:
            now_ms = leases.ports.clock.now_ms()
            if lease.ended_at_ms + REMEMBERED_MS > now_ms:
                leases.book.restore(lease, now_ms)
            else:
                leftovers.append(persistence.ended_path(directory, lease.lease_id))
        elif found.swapped:
            await _finish_commit(leases, leased, found)
            leftovers.append(path)
        elif _lives_on(lease, kept, found, compacting):
            compacting = compacting or lease.purpose is Purpose.COMPACT
            _live_on(leases, leased)
        else:
            leftovers.append(path)
    if shelf.decision is not None and not _keep_decision(leases, kept, shelf.decision):
        leftovers.append(f"{directory}/{persistence.DECISION}")
    if leftovers:
        await leases.ports.run_blocking(partial(persistence.remove_leftovers, leases.ports.disk, leftovers))


def _lives_on(lease: Lease, kept: PartitionLog, found: Found, compacting: bool) -> bool:
    """Of two compact leases the later one counts: the directory of the other was about to be removed."""
    reaches = kept.log_end_offset >= lease.log_end_offset
    second = compacting and lease.purpose is Purpose.COMPACT
    return found.stands and reaches and not second and lease.run_id not in OWN_RUNS


def _live_on(leases: Leases, leased: LeasedLog) -> None:
    lease = leased.lease
    leases.book.restore(lease, leases.ports.clock.now_ms())
    leases.add(leased)
    if lease.purpose is Purpose.COMPACT:
        leased.log.segments.hold(lease.lease_id, list(leased.segments))
    log.info("lease taken up again", lease=lease.lease_id, replica=str(lease.tp), run=lease.run_id)


async def _finish_commit(leases: Leases, leased: LeasedLog, found: Found) -> None:
    """The swap was done and its answer never given: the checkpoint, which comes last, and the answer follow."""
    assert found.committed is not None
    lease, ports = leased.lease, leases.ports
    now_ms = ports.clock.now_ms()
    result = found.committed["result"]
    clean_offset = min(result["clean_offset"], leased.log.log_end_offset)
    if (ports.store.cleaner_offset(lease.tp) or 0) < clean_offset:
        await ports.store.set_cleaner_offset(lease.tp, clean_offset)
    lease.state, lease.ended_at_ms = LeaseState.COMMITTED, now_ms
    lease.decision_sha256, lease.result = found.committed["sha256"], result
    directory = f"{leased.log.directory}/{layout.LEASES}"
    if lease.run_id not in OWN_RUNS:
        record = {"committing": found.committed}
        await ports.run_blocking(partial(persistence.write_committed, ports.disk, directory, leased, now_ms, **record))
        leases.book.restore(lease, now_ms)
    log.info("a commit that the last run had swapped in is finished", lease=lease.lease_id, replica=str(lease.tp))


def _keep_decision(leases: Leases, kept: PartitionLog, data: bytes) -> bool:
    try:
        decision = Decision.decode(data)
    except CorruptData:
        return False
    if decision.range_end > kept.log_end_offset:
        return False
    leases.decisions[kept.tp] = KeptDecision.of(decision, data)
    return True
