"""Which damaged replicas brokers are asked to set aside, and the requests: driver only.

A replica is a suspect if its own files are damaged. If replicas only differ from each other, it is unknown which is
right; if the leader is damaged too, there is no sound replica to fetch from.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.audit.findings import BAD, Finding
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import partition_status, quarantine_replica
from logyard.spark_jobs.segments.replicas import Replica

# Checks whose findings do not prove that a replica's own files are damaged: they compare it with others, concern the
# broker's state rather than its files, or may come from a broken connection.
NO_PROOF = frozenset({"replicas", "replica", "watermark", "topic", "readable"})
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """A damaged replica: its first finding as `reason`, why it is not set aside ("": it is), and its topic's id (None
    where that is not known)."""

    tp: TopicPartition
    broker_id: int
    reason: str
    kept_because: str = ""
    topic_id: str | None = None


def suspects(replicas: Sequence[Replica], findings: Iterable[Finding]) -> list[Suspect]:
    """Return the damaged replicas, each once, in the order of `replicas`."""
    damage: dict[tuple[TopicPartition, int], Finding] = {}
    for finding in findings:
        if finding.level == BAD and finding.check not in NO_PROOF:
            damage.setdefault((TopicPartition(finding.topic, finding.partition), finding.replica), finding)
    leaders = {r.tp: r.broker_id for r in replicas if r.is_leader}
    found = []
    for replica in replicas:
        first = damage.get((replica.tp, replica.broker_id))
        if first is None:
            continue
        leader = leaders.get(replica.tp)
        kept = ""
        if leader is None:
            kept = "no leader was audited"
        elif leader == replica.broker_id:
            kept = "it leads: let a sound replica lead, then audit again"
        elif (replica.tp, leader) in damage:
            kept = "the leader is damaged as well"
        found.append(Suspect(replica.tp, replica.broker_id, f"{first.check}: {first.message}", kept, replica.topic_id))
    return found


def set_aside(found: Sequence[Suspect], brokers: dict[int, BrokerHttp], say: Callable[[str], None]) -> list[Any]:
    """Have brokers set the suspects aside, one after the other; returns a summary row for each. A broker that does not
    answer is not asked again for each of its replicas."""
    rows = []
    silent: dict[int, str] = {}
    for suspect in found:
        row: dict[str, Any] = {"partition": str(suspect.tp), "replica": suspect.broker_id, "reason": suspect.reason}
        refusal = suspect.kept_because or silent.get(suspect.broker_id, "")
        if not refusal:
            say(f"audit: {suspect.tp} on broker {suspect.broker_id} is set aside once it is out of the ISR")
            try:
                row["kept"] = _set_aside(brokers[suspect.broker_id], suspect)
            except LeaseError as error:
                refusal = str(error)
                if error.code == "unreachable":
                    silent[suspect.broker_id] = refusal
        row["refused"] = refusal or None
        say(f"audit: {suspect.tp} on broker {suspect.broker_id}: {refusal or 'kept in ' + row['kept']}")
        rows.append(row)
    return rows


def _set_aside(broker: BrokerHttp, suspect: Suspect) -> str:
    """Return where the files are kept; raises LeaseError, also if the replica is that of another topic by now."""
    if suspect.topic_id is not None:
        now = partition_status(broker, *suspect.tp).get("topic_id")
        if now != suspect.topic_id:
            raise LeaseError("changed", "its topic was deleted and created again since it was audited")
    return str(quarantine_replica(broker, *suspect.tp, suspect.reason)["kept"])


def wait_in_sync(rows: Sequence[dict[str, Any]], brokers: dict[int, BrokerHttp], wait_s: float) -> None:
    """Wait until the replicas that were set aside are in the ISR again; sets `in_sync` in each row."""
    deadline = time.monotonic() + wait_s
    waiting = [row for row in rows if not row["refused"]]
    for row in waiting:
        row["in_sync"] = False
    while waiting and time.monotonic() < deadline:
        silent: set[int] = set()
        for row in list(waiting):
            if row["replica"] in silent or time.monotonic() > deadline:
                continue
            topic, _, partition = row["partition"].rpartition("-")
            try:
                status = partition_status(brokers[row["replica"]], topic, int(partition))
            except LeaseError as error:
                if error.code == "unreachable":
                    silent.add(row["replica"])  # it is waited for once in a look, not for each of its replicas
                continue
            if row["replica"] in status["isr"]:
                row["in_sync"] = True
                waiting.remove(row)
        time.sleep(LOOK_S if waiting else 0)
