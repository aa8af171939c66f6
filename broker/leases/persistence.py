"""Leases and decisions on disk, beside the replica, so that they survive the process (docs/leases.md).

Rule 1: a record is replaced atomically (`.tmp`, rename) and has a checksum. After a kill at any byte there is the old
or the new record; one that a power loss has damaged counts as missing.
Rule 2: a decision is synced before its swap. Records are not synced: losing one costs a lease, no data.
Everything here waits for the disk: call it in threads.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.leases import parts
from logyard.broker.leases.book import Lease, LeaseState, Purpose
from logyard.broker.leases.leased_log import LeasedLog, remove_directory
from logyard.broker.leases.snapshot import FILES, LEASE_FILE, LeasedSegment
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, read_whole, remove_if_there, write_whole
from logyard.broker.model import TopicPartition, topic_id_from_text, topic_id_text
from logyard.broker.records.crc import crc32c

DECISION = "decision"
ENDED_SUFFIX = ".json"
DIGEST_BYTES = 32

Json = dict[str, Any]


def seal(record: Mapping[str, Any]) -> bytes:
    """Return a record as JSON with its checksum."""
    body = json.dumps(record, sort_keys=True).encode()
    return json.dumps({**record, "crc32c": crc32c(body)}, sort_keys=True).encode()


def unseal(data: bytes) -> Json:
    """Parse what `seal` wrote; raises CorruptData."""
    try:
        record = json.loads(data)
        crc = record.pop("crc32c")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptData(f"the record of a lease: {error!r}") from error
    if crc != crc32c(json.dumps(record, sort_keys=True).encode()):
        raise CorruptData("the record of a lease has a wrong checksum")
    found: Json = record
    return found


def record_of(lease: Lease, segments: Iterable[LeasedSegment], **more: Any) -> Json:
    """Return what a restart needs to restore a lease."""
    return {
        "lease_id": lease.lease_id,
        "generation": lease.generation,
        "run_id": lease.run_id,
        "purpose": lease.purpose.value,
        "topic": lease.tp.topic,
        "partition": lease.tp.partition,
        "topic_id": None if lease.topic_id is None else topic_id_text(lease.topic_id),
        "leader_epoch": lease.leader_epoch,
        "end_offset": lease.end_offset,
        "log_end_offset": lease.log_end_offset,
        "ttl_ms": lease.ttl_ms,
        "segments": [segment._asdict() for segment in segments],
        **more,
    }


def write_record(disk: Disk, leased: LeasedLog, **more: Any) -> None:
    """Write a lease's record into its directory; raises DiskError."""
    record = record_of(leased.lease, leased.segments.values(), **more)
    write_whole(disk, f"{leased.directory}/{LEASE_FILE}", seal(record), sync=False)


def committing(request_groups: Sequence[Sequence[int]], sha256: str, result: Json) -> Json:
    """Return the fields that a record has from the beginning of a commit on; a restart tells by them whether it was
    done."""
    return {"committing": {"groups": [list(g) for g in request_groups], "sha256": sha256, "result": result}}


def ended_path(leases_directory: str, lease_id: str) -> str:
    return f"{leases_directory}/{lease_id}{ENDED_SUFFIX}"


def write_committed(disk: Disk, leases_directory: str, lease: Lease, result: Json, ended_at_ms: int) -> None:
    """Keep a committed lease, and the answer of its commit, beside its directory, which is removed.

    Raises DiskError; FileNotFoundError if the replica's directory is gone.
    """
    disk.make_directory(leases_directory, within=leases_directory.rpartition("/")[0])
    begun = committing((), lease.decision_sha256 or "", result)
    path = ended_path(leases_directory, lease.lease_id)
    write_whole(disk, path, seal(record_of(lease, (), **begun, ended_at_ms=ended_at_ms)), sync=False)


def write_answers(disk: Disk, leases_directory: str, committed: Iterable[Lease]) -> None:
    """Keep these committed leases where their replica has moved to, or will; raises DiskError."""
    with suppress(FileNotFoundError):  # the replica was given up
        for lease in committed:
            write_committed(disk, leases_directory, lease, lease.result or {}, lease.ended_at_ms)


# Decisions


def write_decision(disk: Disk, leases_directory: str, data: bytes) -> None:
    """Store and sync an accepted decision; raises DiskError."""
    disk.make_directory(leases_directory, within=leases_directory.rpartition("/")[0])
    write_whole(disk, f"{leases_directory}/{DECISION}", hashlib.sha256(data).digest() + data)


def read_decision(disk: Disk, leases_directory: str) -> bytes | None:
    """Return the stored decision, None if there is none or it is damaged."""
    try:
        data = read_whole(disk, f"{leases_directory}/{DECISION}")
    except FileNotFoundError:
        return None
    return data[DIGEST_BYTES:] if hashlib.sha256(data[DIGEST_BYTES:]).digest() == data[:DIGEST_BYTES] else None


def carry_decision(disk: Disk, source: str, target: str, *, is_kept: bool) -> bool:
    """Have the leases' directory `target` keep the decision of `source`, or none; returns whether it has one.

    Raises DiskError.
    """
    data = read_decision(disk, source) if is_kept else None
    if data is not None:
        with suppress(FileNotFoundError):  # the replica it is in was given up
            write_decision(disk, target, data)
            return True
    remove_if_there(disk, f"{target}/{DECISION}")
    return False


# At the start


@dataclass(slots=True)
class StoredLease:
    """A lease whose record was found at the start.

    `committed` is what the record says of a commit that had begun, `swapped` whether its swap has happened.
    `is_intact`: the links, and for a compact lease the leased segments, are unchanged.
    """

    lease: Lease
    segments: list[LeasedSegment]
    committed: Json | None = None
    is_intact: bool = False
    swapped: bool = False


@dataclass(slots=True)
class StoredLeases:
    """The contents of a replica's `.leases`; `leftovers` are paths that are no longer needed."""

    leases: list[StoredLease] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    decision: bytes | None = None


def read_stored(disk: Disk, partition_directory: str) -> StoredLeases:
    """Read a replica's `.leases`; changes nothing."""
    stored = StoredLeases()
    directory = f"{partition_directory}/{layout.LEASES}"
    if not disk.exists(directory):
        return stored
    for entry in disk.list(directory):
        path = f"{directory}/{entry.name}"
        try:
            if entry.is_directory:
                stored.leases.append(_read_living(disk, partition_directory, path, entry.name))
            elif entry.name == DECISION:
                stored.decision = read_decision(disk, directory)
            elif entry.name.endswith(ENDED_SUFFIX):
                stored.leases.append(_found(unseal(read_whole(disk, path))))
            else:
                stored.leftovers.append(path)
        except (CorruptData, FileNotFoundError):
            stored.leftovers.append(path)
    return stored


def _read_living(disk: Disk, partition_directory: str, path: str, name: str) -> StoredLease:
    found = _found(unseal(read_whole(disk, f"{path}/{LEASE_FILE}")))
    if found.lease.lease_id != name:
        raise CorruptData(f"{path}: its record is that of lease {found.lease.lease_id}")
    if found.committed is not None:
        # Not by size: the start may have cut off what a segment lost with the power.
        wanted = {group[0] for group in found.committed["groups"]}
        replaced = [segment for segment in found.segments if segment.base_offset in wanted]
        found.swapped = any(parts.is_replaced(disk, partition_directory, segment) for segment in replaced)
    if found.lease.purpose is Purpose.COMPACT:
        found.is_intact = parts.first_changed(disk, partition_directory, found.segments) is None
    else:
        found.is_intact = True
    found.is_intact = found.is_intact and all(_linked(disk, path, segment) for segment in found.segments)
    return found


def _linked(disk: Disk, path: str, segment: LeasedSegment) -> bool:
    for name, size in segment.files.items():
        if size:
            link = f"{path}/links/{layout.file_name(segment.base_offset, FILES[name])}"
            if not disk.exists(link) or disk.status(link).size < size:
                return False
    return True


def _found(record: Json) -> StoredLease:
    """Turn a record into a lease; raises CorruptData."""
    try:
        lease = Lease(
            record["lease_id"],
            record["generation"],
            record["run_id"],
            Purpose(record["purpose"]),
            TopicPartition(record["topic"], record["partition"]),
            record["leader_epoch"],
            record["end_offset"],
            record["log_end_offset"],
            record["ttl_ms"],
            0,
        )
        if record.get("topic_id") is not None:
            lease.topic_id = topic_id_from_text(record["topic_id"])
        segments = [LeasedSegment(**segment) for segment in record["segments"]]
        found = StoredLease(lease, segments, record.get("committing"))
        if (ended_at_ms := record.get("ended_at_ms")) is not None:
            lease.state, lease.ended_at_ms = LeaseState.COMMITTED, ended_at_ms
            lease.decision_sha256, lease.result = record["committing"]["sha256"], record["committing"]["result"]
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"the record of a lease: {error!r}") from error


def remove_leftovers(disk: Disk, paths: Sequence[str]) -> None:
    """Remove files and directories that no live lease needs; raises DiskError."""
    for path in paths:
        if path.endswith((ENDED_SUFFIX, ".tmp", DECISION)):
            remove_if_there(disk, path)
        else:
            remove_directory(disk, path)
