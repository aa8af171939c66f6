"""Checks of what replicas report about themselves (offsets, leader, ISR, topic id), before any segment is read; of a
directory, which does not tell where its log ends, once its segments were read."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.framing import OPEN_END, BlindOffsets
from logyard.spark_jobs.segments.replicas import UNKNOWN, Replica


def standing_findings(replicas: Sequence[Replica]) -> Iterator[Finding]:
    """Judge the replicas of one partition: offsets beyond the log, no leader, not in the ISR, other topic ids.

    :param replicas: in the order in which they were leased. While producers write, only a leader that was leased after
        a follower is sure to have every record that this follower knows to be acknowledged.
    """
    leader = next((r for r in replicas if r.is_leader), None)
    leader_seen = False
    for replica in replicas:
        yield from damaged_files(replica)
        yield from _own_offsets(replica)
        if replica is leader:
            leader_seen = True
        elif leader is not None:
            yield from _against_leader(replica, leader)
            if not leader_seen and replica.high_watermark > leader.log_end_offset:
                text = f"its high watermark {replica.high_watermark} lies beyond the leader's log"
                text += f", which ends at {leader.log_end_offset}"
                yield _finding(replica, BAD, "watermark", replica.high_watermark, text)
    if leader is None and replicas:
        yield _finding(replicas[0], WARN, "leader", UNKNOWN, "none of the audited replicas leads the partition")


def damaged_files(replica: Replica) -> Iterator[Finding]:
    """Report the files of a replica that could not be read."""
    for path, text in replica.damaged_files:
        yield Finding(BAD, "file", *replica.tp, replica.broker_id, path, -1, UNKNOWN, text)


def checkpoint_findings(replica: Replica, end: int, unknown: BlindOffsets) -> Iterator[Finding]:
    """Find checkpoints of a directory that lie beyond its log's end: if it is that of the high watermark, acknowledged
    records were lost.

    :param end: the offset after the last batch that was read.
    :param unknown: offsets that only damaged bytes tell; the damage is a finding already.
    """
    if replica.log_end_offset == UNKNOWN and not unknown.meets(end, OPEN_END):
        yield from _own_offsets(replace(replica, log_end_offset=end))


def _own_offsets(replica: Replica) -> Iterator[Finding]:
    recovery_point = UNKNOWN if replica.lease is None else int(replica.lease.details.get("recovery_point", UNKNOWN))
    offsets = {
        "high watermark": replica.high_watermark,
        "log start": replica.log_start_offset,
        "cleaner checkpoint": replica.clean_offset,
        "recovery point": recovery_point,
    }
    for name, offset in offsets.items():
        if offset > replica.log_end_offset:
            text = f"its {name} {offset} lies beyond its log's end {replica.log_end_offset}"
            if name == "high watermark" and replica.lease is None:
                text += ": acknowledged records were lost"
            yield _finding(replica, BAD, "checkpoint", offset, text)


def _against_leader(replica: Replica, leader: Replica) -> Iterator[Finding]:
    if replica.topic_id != leader.topic_id:
        text = f"its topic id is {replica.topic_id}, the leader's {leader.topic_id}"
        yield _finding(replica, BAD, "topic", UNKNOWN, text)
    isr = [] if leader.lease is None else leader.lease.details.get("isr", [])
    if isr and replica.broker_id not in isr:
        text = f"not in the ISR: its log ends at {replica.log_end_offset}, the leader's at {leader.log_end_offset}"
        yield _finding(replica, WARN, "isr", replica.log_end_offset, text)


def stray_findings(broker_id: int, strays: Sequence[str]) -> Iterator[Finding]:
    """Report the directories that belong to no replica of a broker."""
    for directory in strays:
        yield Finding(
            WARN, "stray", "", UNKNOWN, broker_id, directory, -1, UNKNOWN, "it belongs to no replica of this broker"
        )


def _finding(replica: Replica, level: str, check: str, offset: int, text: str) -> Finding:
    return Finding(level, check, *replica.tp, replica.broker_id, replica.directory, -1, offset, text)
