"""Restoring leases and decisions from the disk when the broker starts (docs/leases.md, "A restart")."""

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
from logyard.broker.leases.persistence import StoredLease, StoredLeases
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.partition_log import PartitionLog

LOGS_TOGETHER = 256

log = structlog.get_logger("logyard.leases")


async def restore(leases: Leases) -> None:
    """Restore what survived the restart. Call it once the logs are loaded, before anything is deleted from them."""
    logs = list(leases.ports.store.logs.all_current())
    for at in range(0, len(logs), LOGS_TOGETHER):
        group = logs[at : at + LOGS_TOGETHER]
        stored_by_log = await leases.ports.run_blocking(
            partial(_read, leases.ports.disk, [partition_log.directory for partition_log in group])
        )
        for partition_log, stored in zip(group, stored_by_log, strict=True):
            try:
                await _restore_log(leases, partition_log, stored)
            except StorageError as error:
                log.warning("leases are not restored", replica=str(partition_log.tp), error=str(error))


def _read(disk: Disk, directories: Sequence[str]) -> list[StoredLeases]:
    stored_by_log = []
    for directory in directories:
        try:
            stored_by_log.append(persistence.read_stored(disk, directory))
        except StorageError:
            stored_by_log.append(StoredLeases())  # its log directory goes offline, with all its logs
    return stored_by_log


async def _restore_log(leases: Leases, partition_log: PartitionLog, stored: StoredLeases) -> None:
    directory = f"{partition_log.directory}/{layout.LEASES}"
    leftovers = list(stored.leftovers)
    compacting = False
    for found in sorted(stored.leases, key=lambda found: -found.lease.generation):
        lease, path = found.lease, f"{directory}/{found.lease.lease_id}"
        leased = LeasedLog(lease, partition_log, path)
        leased.set_up(found.segments)
        if lease.tp != partition_log.tp or not lease.is_of(partition_log.topic_id):
            is_ended = lease.state is LeaseState.COMMITTED
            leftovers.append(persistence.ended_path(directory, lease.lease_id) if is_ended else path)
        elif lease.state is LeaseState.COMMITTED:
            now_ms = leases.ports.clock.now_ms()
            if lease.ended_at_ms + REMEMBERED_MS > now_ms:
                leases.book.restore(lease, now_ms)
            else:
                leftovers.append(persistence.ended_path(directory, lease.lease_id))
        elif found.swapped:
            await _finish_commit(leases, leased, found)
            leftovers.append(path)
        elif _is_alive(lease, partition_log, found, compacting):
            compacting = compacting or lease.purpose is Purpose.COMPACT
            _go_on(leases, leased)
        else:
            leftovers.append(path)
    if stored.decision is not None and not _keep_decision(leases, partition_log, stored.decision):
        leftovers.append(f"{directory}/{persistence.DECISION}")
    if leftovers:
        await leases.ports.run_blocking(partial(persistence.remove_leftovers, leases.ports.disk, leftovers))


def _is_alive(lease: Lease, partition_log: PartitionLog, found: StoredLease, compacting: bool) -> bool:
    """Whether a lease continues. Of two compact leases the later one does: the other's directory was to be removed."""
    reaches = partition_log.log_end_offset >= lease.log_end_offset
    second = compacting and lease.purpose is Purpose.COMPACT
    return found.is_intact and reaches and not second and lease.run_id not in OWN_RUNS


def _go_on(leases: Leases, leased: LeasedLog) -> None:
    lease = leased.lease
    leases.book.restore(lease, leases.ports.clock.now_ms())
    leases.add(leased)
    if lease.purpose is Purpose.COMPACT:
        leased.log.segments.hold(lease.lease_id, list(leased.segments))
    log.info("lease restored", lease=lease.lease_id, replica=str(lease.tp), run=lease.run_id)


async def _finish_commit(leases: Leases, leased: LeasedLog, found: StoredLease) -> None:
    """Complete a commit that was swapped in before the stop: write the checkpoint, and keep the answer."""
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
        await ports.run_blocking(
            partial(persistence.write_committed, ports.disk, directory, lease, result, lease.ended_at_ms)
        )
        leases.book.restore(lease, now_ms)
    log.info("commit finished after a restart", lease=lease.lease_id, replica=str(lease.tp))


def _keep_decision(leases: Leases, partition_log: PartitionLog, data: bytes) -> bool:
    try:
        decision = Decision.decode_head(data)
    except CorruptData:
        return False
    if decision.range_end > partition_log.log_end_offset:
        return False
    leases.decisions[partition_log.tp] = KeptDecision.of(decision, data)
    return True
