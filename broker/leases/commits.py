"""The commit of a compact lease (docs/leases.md, POST /leases/{id}/commit): check, build, swap, checkpoint.

Rule 1: what waits for the disk runs in threads. The fence is checked again after each wait, last right before the
        swap, which then runs on the event loop without waiting.
Rule 2: a failure before the swap leaves the old segments; after the swap the lease cannot be lost any more.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from logyard.broker.event_loop import RunBlocking
from logyard.broker.leases import parts
from logyard.broker.leases.book import OWN_RUNS, LeaseError, lease_ended
from logyard.broker.leases.leased_log import LeasedLog
from logyard.broker.leases.leases import Leases
from logyard.broker.leases.requests import CommitRequest
from logyard.broker.leases.snapshot import LeasedSegment
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, remove_if_there
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.segment import swap

SaveCleanOffset = Callable[[int], Awaitable[None]]


class SegmentChanged(Exception):
    """A leased segment's file is not the one that was linked: its base offset is the argument."""


def check_fence(leases: Leases, leased: LeasedLog, request: CommitRequest) -> None:
    """Raise LeaseError (`lease_ended`, `fenced`, `starting`, `not_compacted`) if the leased segments may not be
    replaced now."""
    lease, replica = leased.lease, leased.log
    if not lease.living:
        raise lease_ended(lease)
    _, partition = leases.leased_replica(lease)
    if not request.leader_epoch == lease.leader_epoch == partition.leader_epoch:
        raise LeaseError(
            "fenced",
            409,
            f"{lease.tp}: leader epoch {partition.leader_epoch} now, {lease.leader_epoch} when it was leased",
        )
    if replica.high_watermark < request.range_end:
        raise LeaseError("fenced", 409, f"{lease.tp}: high watermark {replica.high_watermark} < {request.range_end}")
    if not replica.config.compacted:
        raise LeaseError("not_compacted", 409, f"{lease.tp}: its cleanup.policy has no compact any more")


async def carry_out(
    run: RunBlocking,
    leased: LeasedLog,
    request: CommitRequest,
    members: Sequence[Sequence[LeasedSegment]],
    fence: Callable[[], None],
    begun: Callable[[], None],
    swapped: Callable[[], None],
    save_clean_offset: SaveCleanOffset,
) -> dict[str, Any]:
    """Swap the parts in and return the commit's answer.

    :param fence: raises LeaseError if the commit may not continue.
    :param begun: records that the commit has begun; called in a thread, before the first file is moved.
    :param swapped: called once the new segments are in place.
    :raises: LeaseError, SegmentChanged, StorageError, FileNotFoundError (files of the lease are gone). Nothing was
        swapped unless `swapped` was called.
    """
    log = leased.log
    await run(partial(_check, log.disk, leased, request, members))
    fence()
    await run(begun)
    fence()
    replacements = await _prepare(run, leased, request)
    try:
        fence()
        log.swap_in(replacements)
    except swap.BadPart as error:
        raise parts.bad_part(error.base_offset, str(error)) from error
    except LeaseError:
        await run(partial(swap.withdraw, replacements))
        raise
    swapped()
    if replacements:
        await run(partial(log.disk.sync_directory, log.directory))
    await save_clean_offset(request.clean_offset)
    return answer(request, members)


def _check(disk: Disk, leased: LeasedLog, request: CommitRequest, members: Sequence[Sequence[LeasedSegment]]) -> None:
    ours = leased.lease.run_id in OWN_RUNS
    for group, segments in zip(request.groups, members, strict=True):
        # Parts of the broker's own runs are read only once: batch by batch, while their indexes are built.
        if not ours:
            parts.check_part(disk, parts.part_path(leased.parts_directory, group.base_offset), group, segments)
        changed = parts.first_changed(disk, leased.log.directory, segments)
        if changed is not None:
            raise SegmentChanged(changed)


async def _prepare(run: RunBlocking, leased: LeasedLog, request: CommitRequest) -> list[swap.Replacement]:
    log = leased.log
    paths = [parts.part_path(leased.parts_directory, group.base_offset) for group in request.groups]
    bases = [group.segments for group in request.groups]
    try:
        made: list[swap.Replacement] = await run(partial(log.prepare_replacement, paths, bases))
    except swap.BadPart as error:
        raise parts.bad_part(error.base_offset, str(error)) from error
    except FileNotFoundError:
        # A truncation removed a segment during the preparation.
        await run(partial(_sweep, log, list(leased.segments)))
        raise
    return made


def _sweep(log: PartitionLog, bases: Sequence[int]) -> None:
    """Remove the files of an interrupted preparation; only this lease makes such files."""
    for base in bases:
        for kind in layout.SEGMENT_KINDS:
            with suppress(FileNotFoundError):
                remove_if_there(log.disk, f"{log.directory}/{layout.file_name(base, kind, layout.CLEANED)}")


def answer(request: CommitRequest, members: Sequence[Sequence[LeasedSegment]]) -> dict[str, Any]:
    """Return the answer of a commit that is done."""
    replaced = [segment for segments in members for segment in segments]
    return {
        "state": "committed",
        "segments_before": len(replaced),
        "segments_after": len(request.groups),
        "bytes_before": sum(segment.size for segment in replaced),
        "bytes_after": sum(group.size for group in request.groups),
        "records": sum(group.records for group in request.groups),
        "clean_offset": request.clean_offset,
    }
