"""What the broker's own log code writes is sound to an audit: a leader's log, a follower's, a recovered one."""

import random
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import Origin
from logyard.broker.log.recovery import recovery
from logyard.broker.log.recovery.recovery import Checkpointed
from logyard.broker.records import batch
from logyard.spark_jobs.audit.findings import Finding
from logyard.spark_jobs.audit.partition import audit_bin, judge_rows
from logyard.spark_jobs.audit.replica_state import damaged_files
from logyard.spark_jobs.audit.segment import SegmentAudit
from logyard.spark_jobs.segments.replicas import of_partition_directory
from tests.support.lease_world import LeaseWorld, commit_body, fill
from tests.support.logs import NOW, TP, create_log, marker, produced

CONFIG = TopicConfig(segment_bytes=1500, index_interval_bytes=200)


def written(rng: random.Random, directory: Path) -> PartitionLog:
    """A leader's log: plain batches, and transactions of three producers that overlap, in several epochs."""
    log = create_log(OsDisk(), TP, str(directory), CONFIG, now_ms=NOW)
    epoch, sequences, running = 0, dict.fromkeys((1, 2, 3), 0), set[int]()
    log.epochs.assign(epoch, 0)
    for step in range(rng.randrange(40, 90)):
        now = NOW + step * rng.choice([0, 5])
        if rng.random() < 0.04:
            epoch += rng.randrange(1, 3)
            log.epochs.assign(epoch, log.log_end_offset)
        if running and rng.random() < 0.3:
            producer = rng.choice(sorted(running))
            running.discard(producer)
            kind = rng.choice([batch.ABORT, batch.COMMIT])
            log.append_as_leader(marker(kind, producer_id=producer), epoch, now_ms=now, origin=Origin.COORDINATOR)
            continue
        producer = rng.choice([-1, 1, 2, 3])
        values = [rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 5))]
        fields: dict[str, Any] = {"timestamp": now}
        if producer > 0:
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            fields["transactional"] = True
            sequences[producer] += len(values)
            running.add(producer)
        log.append_as_leader(produced(values, **fields), epoch, now_ms=now)
    return log


def audit(directory: Path) -> list[Finding]:
    replica = of_partition_directory(str(directory), 1, "delete")
    work = [SegmentAudit(s, True, replica.leader_epochs, False, NOW + 10**6) for s in replica.segments]
    judged = judge_rows([replica], [rows for _, rows in audit_bin(work)]).findings
    return [*damaged_files(replica), *(f for f in judged if f.check != "sequence")]


@pytest.mark.parametrize("seed", range(6))
def test_leaders_followers_and_recovered_logs_have_no_finding(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    leader = written(rng, tmp_path / "1" / "t-0")
    assert len(leader.segments) > 2
    follower = create_log(OsDisk(), TP, str(tmp_path / "2" / "t-0"), CONFIG, now_ms=NOW)
    while follower.log_end_offset < leader.log_end_offset:
        # Several batches in one piece, as a fetch brings them.
        piece = leader.read(
            follower.log_end_offset, rng.randrange(200, 1200), limit_offset=leader.log_end_offset, min_one=True
        )
        follower.append_as_follower(memoryview(bytearray(piece.load())))
    for log in (leader, follower):
        log.close()
    for broker in ("1", "2"):
        assert audit(tmp_path / broker / "t-0") == []

    indexes = [p for p in (tmp_path / "1" / "t-0").iterdir() if p.suffix in (".index", ".timeindex", ".txnindex")]
    for path in indexes:
        path.unlink()
    recovered = tmp_path / "1" / "t-0"
    state = recovery.load(OsDisk(), str(recovered), CONFIG, Checkpointed(), now_ms=NOW)
    PartitionLog(OsDisk(), TP, str(recovered), CONFIG, state, now_ms=NOW).close()
    assert audit(recovered) == []


async def test_what_a_commit_has_swapped_in_has_no_finding(tmp_path: Path) -> None:
    async with LeaseWorld(OsDisk(), str(tmp_path)) as world:
        log = world.lead()
        fill(log, 80)
        log.flush()
        lease = await world.take()
        decision, parts = await world.compaction(lease)
        await world.put_all(lease, parts)
        await world.ok("POST", f"/leases/{lease['lease_id']}/commit", commit_body(lease, decision, parts))
    replica = of_partition_directory(str(tmp_path / "t-0"), 1, "compact")
    assert replica.clean_offset == lease["end_offset"] > 0
    work = [SegmentAudit(s, True, replica.leader_epochs, True, NOW + 10**6) for s in replica.segments]
    found = judge_rows([replica], [rows for _, rows in audit_bin(work)]).findings
    assert [*damaged_files(replica), *found] == []
