"""One run of the broker's own (cleaner or catch-up): take a lease, have a worker write the parts, commit."""

import asyncio
from contextlib import suppress
from typing import Any

from logyard.broker import tasks
from logyard.broker.cleaner.worker import CleaningWorker
from logyard.broker.errors import CorruptData, StorageError
from logyard.broker.leases.book import LeaseError
from logyard.broker.leases.service import LeaseService
from logyard.broker.model import TopicPartition

TTL_MS = 60_000

Json = dict[str, Any]


async def run(
    lease_service: LeaseService, worker: CleaningWorker, tp: TopicPartition, run_id: str, request: Json
) -> Json:
    """Take a lease on a log, have the request carried out, commit; returns the worker's answer with the commit's.

    If the request has a `decision`, it goes into the commit. Raises LeaseError, StorageError, WorkerDied, and
    CorruptData if the log cannot be cleaned.
    """
    lease = await lease_service.grant(
        {"topic": tp.topic, "partition": tp.partition, "run_id": run_id, "purpose": "compact", "ttl_ms": TTL_MS}
    )
    try:
        made = await _work_at(lease_service, worker, lease, request)
        answer = await lease_service.commit(lease["lease_id"], _commit_of(lease, made, request.get("decision")))
    except BaseException as error:
        # This changes nothing if the lease has ended. A commit that has begun goes on to its end, and refuses: that
        # must not take the place of what was raised, which may be the end of whoever runs this.
        reason = str(error) or type(error).__name__
        with suppress(LeaseError):
            await lease_service.abort(lease["lease_id"], {"generation": lease["generation"], "reason": reason})
        raise
    return {**made, **answer}


async def _work_at(lease_service: LeaseService, worker: CleaningWorker, lease: Json, request: Json) -> Json:
    """Have the parts written, and renew the lease meanwhile; raises LeaseError if it is lost."""
    job = tasks.answering(worker.clean({**request, "lease": lease}))
    try:
        while not job.done():
            await asyncio.wait({job}, timeout=TTL_MS / 3000)
            if not job.done():
                await lease_service.heartbeat(lease["lease_id"], {"generation": lease["generation"]})
    finally:
        if not job.done():
            job.cancel()
            await asyncio.wait({job})
    made = job.result()
    match made.get("failed"):
        case None:
            return made
        case "storage":
            raise StorageError(made["message"])
        case _:
            raise CorruptData(made["message"])


def _commit_of(lease: Json, made: Json, decision: str | None) -> Json:
    said = {
        "sha256": made["sha256"],
        "range_start": made["range_start"],
        "range_end": made["range_end"],
        "now_ms": lease["now_ms"],
        "tombstone_cutoff": lease["clean_offset"],
        "survivors": made["survivors"],
    }
    return {
        "generation": lease["generation"],
        "leader_epoch": lease["leader_epoch"],
        "clean_offset": made["range_end"],
        "decision": said if decision is None else {**said, "bytes": decision},
        "groups": made["groups"],
    }
