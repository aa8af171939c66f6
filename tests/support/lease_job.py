"""What a compaction job does, without Spark: leases on replicas, one decision, a rewrite and a commit for each."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.records import batch
from logyard.broker.records.batch import iter_headers
from logyard.spark_jobs.leases import client
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.leases.client import Lease
from tests.support.real_cluster import eventually
from tests.support.whole_segments import rewrite_group, survey_segments


def broker_https(description: dict[str, Any]) -> dict[int, BrokerHttp]:
    """The HTTP sides of the brokers of a cluster.json on this machine."""
    return {
        broker["id"]: BrokerHttp(
            broker["id"],
            f"{broker['host']}:{broker['http_port']}",
            (Path(broker["log_dirs"][0]) / "http.token").read_text().strip(),
        )
        for broker in description["brokers"]
    }


def read_segments(lease: Lease) -> dict[int, memoryview]:
    """Every leased segment's log over HTTP, by base offset."""
    found = {}
    for segment in lease.segments:
        data = bytearray(segment.size)
        path = lease.file_path(segment.base_offset, "log")
        assert lease.broker.read(path, 0, segment.size, memoryview(data)) == segment.size
        found[segment.base_offset] = memoryview(bytes(data))
    return found


def decide(leader: Lease, range_end: int, tombstone_cutoff: int) -> Decision:
    """Pass 1 over the leader's segments."""
    told = leader.details
    survey = Survey(
        leader.topic,
        leader.partition,
        leader.leader_epoch,
        leader.segments[0].base_offset,
        range_end,
        told["now_ms"],
        told["config"]["delete.retention.ms"],
        tombstone_cutoff,
        [
            AbortedTransaction(a["producer_id"], a["first_offset"], a["last_offset"])
            for a in told["aborted_transactions"]
        ],
        {p["producer_id"]: ActiveProducer(p["last_offset"], p["producer_epoch"]) for p in told["producers"]},
    )
    return survey_segments(read_segments(leader).values(), survey)


def rewrite_and_commit(lease: Lease, decision: Decision, aside: Path, group_size: int = 2) -> dict[str, Any]:
    """Pass 2 over one replica's own segments, and its commit; returns the broker's answer."""
    segments = read_segments(lease)
    bases = list(segments)
    groups = []
    for at in range(0, len(bases), group_size):
        members = bases[at : at + group_size]
        data = b"".join(bytes(b) for b in rewrite_group([segments[base] for base in members], decision, Tally()))
        digest = hashlib.sha256(data).hexdigest()
        aside.write_bytes(data)
        lease.put_part(members[0], str(aside), len(data), digest)
        headers = [header for _, header in iter_headers(data)]
        part: dict[str, object] = {"size": len(data), "sha256": digest, "last_offset": headers[-1].last_offset}
        part["records"] = sum(header.count for header in headers)
        groups.append({"segments": members, "part": part})
    return lease.commit(decision.to_commit(), groups, decision.range_end)


def kept_below(directory: Path, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of the records below an offset, off a replica's own files."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        for position, header in iter_headers(data):
            if header.last_offset < end:
                found += [(r.offset, r.key, r.value) for r in batch.records(data, position)]
    return found


def compact_replicas(brokers: Iterable[BrokerHttp], topic: str, end: int, aside: Path) -> int:
    """Compact the replicas of partition 0 at these brokers, the leader's last; returns the end of what was compacted.

    It waits until all know that everything below `end` is committed.
    """
    asked = list(brokers)
    eventually(
        lambda: all(client.partition_status(broker, topic, 0)["high_watermark"] == end for broker in asked),
        f"all know that {topic} is committed up to {end}",
    )
    taken = [client.acquire(one.for_run("run", topic, "compact"), topic, 0, "run", "compact") for one in asked]
    leader = next(lease for lease in taken if lease.is_leader)
    range_end = min(lease.end_offset for lease in taken)
    decision = decide(leader, range_end, 0)
    for lease in sorted(taken, key=lambda lease: lease.is_leader):
        rewrite_and_commit(lease, decision, aside)
    client.end_run(taken, "done")
    return range_end
