"""Leases of the brokers' lease API (docs/leases.md): taken, renewed, committed, ended; and the status of replicas."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.leases.answers import Answer
from logyard.spark_jobs.leases.broker_http import BAD_ANSWER, COMMIT_TIMEOUT_S, BrokerHttp, LeaseError

# Codes after which a commit may or may not have happened; then the lease's state is asked for, this many times.
UNSURE = ("unreachable", "commit_in_progress", BAD_ANSWER)
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
    def from_json(cls, row: Answer) -> "LeasedSegment":
        """Raises LeaseError (`bad_answer`), naming the field."""
        return cls(
            base_offset=row.number("base_offset"),
            last_offset=row.number("last_offset"),
            size=row.number("size"),
            max_timestamp=row.number("max_timestamp"),
            mtime_ms=row.number("mtime_ms", -1),
            active=row.flag("active", False),
            files=row.by_name("files"),
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
        """Parse the answer; raises LeaseError (`bad_answer`), naming the broker and the field."""
        answer = Answer(broker.answer_to("POST", "/leases"), row)
        return cls(
            broker=broker,
            lease_id=answer.text("lease_id"),
            generation=answer.number("generation"),
            topic=answer.text("topic"),
            partition=answer.number("partition"),
            purpose=answer.text("purpose"),
            leader_epoch=answer.number("leader_epoch"),
            is_leader=answer.flag("is_leader"),
            end_offset=answer.number("end_offset"),
            high_watermark=answer.number("high_watermark"),
            segments=tuple(map(LeasedSegment.from_json, answer.inners("segments"))),
            details=dict(row),
        )

    @property
    def answer(self) -> Answer:
        """The whole answer, to read further fields of."""
        return Answer(self.broker.answer_to("POST", "/leases"), self.details)

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
        path = f"{self.path}/commit"
        return self._result(path, self.broker.call("POST", path, body, timeout_s=COMMIT_TIMEOUT_S))

    def _result(self, path: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a commit, whose counts of segments a summary adds up; raises LeaseError."""
        answer = Answer(self.broker.answer_to("POST", path), said)
        for name in ("segments_before", "segments_after"):
            answer.number(name, 0)
        return dict(said)

    def committed_after_all(self, first: LeaseError) -> dict[str, Any]:
        """Ask for the lease's state until a commit whose answer was lost is done; raises `first` if it did not
        happen."""
        for _ in range(COMMIT_LOOKS):
            time.sleep(COMMIT_LOOK_S)
            try:
                answer = Answer(self.broker.answer_to("GET", self.path), self.broker.call("GET", self.path))
                state = answer.text("state")
                if state == "committed":
                    return self._result(self.path, answer.inner("result").fields)
            except LeaseError as error:
                if error.code in ("unreachable", BAD_ANSWER):
                    continue
                raise first from error
            if state != "committing":
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
    """Return the broker's status of one replica, without a lease; raises LeaseError."""
    path = f"/partitions/{quote(topic)}/{partition}"
    status = broker.call("GET", path, as_user=True)
    answer = Answer(broker.answer_to("GET", path), status)
    answer.text_or_none("topic_id")
    answer.flag("is_leader")
    for name in ("leader_epoch", "log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset"):
        answer.number(name)
    answer.pairs("leader_epochs")
    answer.numbers("isr")
    return status


def partitions_status(broker: BrokerHttp) -> dict[str, Any]:
    """Return the broker's status of all its replicas, and its stray directories; raises LeaseError."""
    told = broker.call("GET", "/partitions", as_user=True)
    Answer(broker.answer_to("GET", "/partitions"), told).texts("strays")
    return told


def quarantine_replica(broker: BrokerHttp, topic: str, partition: int, reason: str) -> dict[str, Any]:
    """Have a broker set a damaged follower's files aside and fetch the log anew; waits until it is out of the ISR.

    Raises LeaseError (docs/leases.md lists the codes).
    """
    path = f"/partitions/{quote(topic)}/{partition}/quarantine"
    told = broker.call("POST", path, {"reason": reason[:200]}, timeout_s=COMMIT_TIMEOUT_S, as_user=True)
    Answer(broker.answer_to("POST", path), told).text("kept")
    return told
