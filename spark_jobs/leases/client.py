"""Leases of the brokers' lease API (docs/leases.md): taken, renewed, committed, ended; and the status of replicas."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.spark_jobs.leases.broker_http import COMMIT_TIMEOUT_S, BrokerHttp, LeaseError

# Codes after which a commit may or may not have happened; then the lease's state is asked for, this many times.
UNSURE = ("unreachable", "commit_in_progress")
COMMIT_LOOKS, COMMIT_LOOK_S = 30, 2.0


@dataclass(frozen=True, slots=True)
class LeasedSegment:
    """One segment of a lease; `files` gives the leased size of log, index, timeindex, txnindex."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int
    mtime_ms: int
    active: bool
    files: Mapping[str, int]

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "LeasedSegment":
        return cls(
            base_offset=int(row["base_offset"]),
            last_offset=int(row["last_offset"]),
            size=int(row["size"]),
            max_timestamp=int(row["max_timestamp"]),
            mtime_ms=int(row.get("mtime_ms", -1)),
            active=bool(row.get("active", False)),
            files={str(name): int(size) for name, size in row["files"].items()},
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """The answer of POST /leases: typed fields for those that jobs use, the whole answer in `details`."""

    broker: BrokerHttp
    lease_id: str
    generation: int
    topic: str
    partition: int
    purpose: str
    leader_epoch: int
    is_leader: bool
    end_offset: int
    high_watermark: int
    segments: tuple[LeasedSegment, ...]
    details: Mapping[str, Any] = field(repr=False)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def from_json(cls, broker: BrokerHttp, row: Mapping[str, Any]) -> "Lease":
        """Parse the answer; raises CorruptData if a field is missing."""
        try:
            return cls(
                broker=broker,
                lease_id=str(row["lease_id"]),
                generation=int(row["generation"]),
                topic=str(row["topic"]),
                partition=int(row["partition"]),
                purpose=str(row["purpose"]),
                leader_epoch=int(row["leader_epoch"]),
                is_leader=bool(row["is_leader"]),
                end_offset=int(row["end_offset"]),
                high_watermark=int(row["high_watermark"]),
                segments=tuple(LeasedSegment.from_json(s) for s in row["segments"]),
                details=dict(row),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"lease of broker {broker.broker_id}: {error!r}") from error

    @property
    def path(self) -> str:
        return f"/leases/{self.lease_id}"

    def file_path(self, base_offset: int, kind: str) -> str:
        """Return the HTTP path of one leased file."""
        return f"{self.path}/segments/{base_offset}/{kind}"

    def local_links(self) -> str | None:
        """Return the directory of hard links if this process sees the broker's disk, else None."""
        links = str(self.details.get("links_dir", ""))
        return links if links and _is_our_directory(os.path.dirname(links), self.lease_id) else None

    def local_parts(self) -> str | None:
        """Return the directory for replacement files if this process can write to the broker's disk, else None."""
        parts = str(self.details.get("parts_dir", ""))
        if not parts or not _is_our_directory(os.path.dirname(parts), self.lease_id):
            return None
        return parts if os.access(parts, os.W_OK) else None

    def put_part(self, base_offset: int, file_path: str, size: int, sha256: str) -> None:
        """Upload one replacement file; raises LeaseError."""
        with open(file_path, "rb") as file:
            self.broker.put(f"{self.path}/parts/{base_offset}?generation={self.generation}", file, size, sha256)

    def heartbeat(self) -> dict[str, Any]:
        """Renew the lease; raises LeaseError if it has ended."""
        return self.broker.call("POST", f"{self.path}/heartbeat", {"generation": self.generation}, timeout_s=10.0)

    def commit(self, decision: Mapping[str, Any], groups: list[dict[str, Any]], clean_offset: int) -> dict[str, Any]:
        """Commit and wait for the swap; if the answer is lost, ask for the lease's state.

        Raises LeaseError.
        """
        try:
            return self.try_commit(decision, groups, clean_offset)
        except LeaseError as error:
            if error.code not in UNSURE:
                raise
            return self.committed_after_all(error)

    def try_commit(
        self, decision: Mapping[str, Any], groups: list[dict[str, Any]], clean_offset: int
    ) -> dict[str, Any]:
        """Commit and wait for the swap; raises LeaseError, with a code in UNSURE if it may have happened."""
        body = {
            "generation": self.generation,
            "leader_epoch": self.leader_epoch,
            "clean_offset": clean_offset,
            "decision": dict(decision),
            "groups": groups,
        }
        return self.broker.call("POST", f"{self.path}/commit", body, timeout_s=COMMIT_TIMEOUT_S)

    def committed_after_all(self, first: LeaseError) -> dict[str, Any]:
        """Ask for the lease's state until a commit whose answer was lost is done; raises `first` if it did not
        happen."""
        for _ in range(COMMIT_LOOKS):
            time.sleep(COMMIT_LOOK_S)
            try:
                summary = self.broker.call("GET", self.path)
            except LeaseError as error:
                if error.code == "unreachable":
                    continue
                raise first from error
            if summary["state"] == "committed":
                return dict(summary["result"])
            if summary["state"] != "committing":
                break
        raise first

    def abort(self, reason: str) -> bool:
        """End the lease; returns whether its broker answers. Never raises: a lease that cannot be ended expires."""
        try:
            self.broker.call(
                "POST", f"{self.path}/abort", {"generation": self.generation, "reason": reason[:200]}, 10.0
            )
        except LeaseError as error:
            return error.code != "unreachable"
        return True


def _is_our_directory(directory: str, lease_id: str) -> bool:
    try:
        with open(os.path.join(directory, "lease.json"), encoding="utf-8") as file:
            return bool(json.load(file).get("lease_id") == lease_id)
    except (OSError, ValueError, AttributeError):
        return False


def acquire(broker: BrokerHttp, topic: str, partition: int, run_id: str, purpose: str, ttl_ms: int = 60_000) -> Lease:
    """Take a lease on one replica; raises LeaseError."""
    body = {"topic": topic, "partition": partition, "run_id": run_id, "purpose": purpose, "ttl_ms": ttl_ms}
    return Lease.from_json(broker, broker.call("POST", "/leases", body))


def end_leases(leases: Iterable[Lease], reason: str) -> frozenset[int]:
    """End every lease that is still alive; returns the brokers that do not answer.

    Such a broker is waited for once, not for each of what may be thousands of leases: they expire.
    """
    silent: set[int] = set()
    for lease in leases:
        broker = lease.broker.broker_id
        if broker not in silent and not lease.abort(reason):
            silent.add(broker)
    return frozenset(silent)


def end_run(leases: Iterable[Lease], reason: str) -> None:
    """End every lease that is still alive, then the runs that they belong to, with the tokens of their tasks."""
    known = list(leases)
    silent = end_leases(known, reason)
    runs = {(lease.broker.broker_id, lease.details.get("run_id")): lease.broker for lease in known}
    for (broker_id, run_id), broker in runs.items():
        if run_id is not None and broker_id not in silent:
            broker.end_run(str(run_id))


def partition_status(broker: BrokerHttp, topic: str, partition: int) -> dict[str, Any]:
    """Return the broker's status of one replica, without a lease."""
    return broker.call("GET", f"/partitions/{quote(topic)}/{partition}", as_user=True)


def partitions_status(broker: BrokerHttp) -> dict[str, Any]:
    """Return the broker's status of all its replicas, and its stray directories."""
    return broker.call("GET", "/partitions", as_user=True)


def quarantine_replica(broker: BrokerHttp, topic: str, partition: int, reason: str) -> dict[str, Any]:
    """Have a broker set a damaged follower's files aside and fetch the log anew; waits until it is out of the ISR.

    Raises LeaseError (docs/leases.md lists the codes).
    """
    path = f"/partitions/{quote(topic)}/{partition}/quarantine"
    return broker.call("POST", path, {"reason": reason[:200]}, timeout_s=COMMIT_TIMEOUT_S, as_user=True)
