"""A follower with a flipped byte: an audit finds it, has it set aside, and it comes back whole."""

from pathlib import Path

import pytest

from tests.support.job_process import finish_job, start_job
from tests.support.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

EVENTS = [(b"k%d" % (i % 101), b"value %d " % i * 6) for i in range(5000)]


def test_a_damaged_follower_is_found_set_aside_and_filled_again(cluster: RealCluster, tmp_path: Path) -> None:
    topic = "flipped"
    cluster.create(topic, 1, 3, segment_bytes="65536", min_insync_replicas="2")
    assert len(cluster.produce(topic, EVENTS, **{"batch.size": 8000})) == len(EVENTS)
    eventually(lambda: cluster.isrs_full(topic), "all in sync")
    eventually(lambda: len(set(cluster.digests(topic, 0).values())) == 1, "all replicas are the same")
    leader = cluster.describe(topic)[0].leader
    directories = cluster.replica_dirs(topic, 0)
    doomed = next(n for n in directories if n != leader)
    log = sorted(directories[doomed].glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[100] ^= 0x10  # in the first batch, behind its header
    with log.open("r+b") as file:  # in place: the broker has it open
        file.write(data)

    summary = finish_job(start_job("audit", cluster, tmp_path, "--topic", topic, "--re-replicate", "60"), 2)
    assert {(f["check"], f["replica"]) for f in summary["first_findings"]} >= {("crc", doomed)}
    (row,) = summary["quarantined"]
    assert (row["partition"], row["replica"], row["refused"], row["in_sync"]) == (f"{topic}-0", doomed, None, True)
    kept = Path(row["kept"])
    assert kept.parent == directories[doomed].parent
    assert (kept / log.name).read_bytes() == data, "what was damaged is kept"
    eventually(lambda: len(set(cluster.digests(topic, 0).values())) == 1, "all replicas are the same again")
    assert cluster.isrs_full(topic)

    again = finish_job(start_job("audit", cluster, tmp_path, "--topic", topic))
    assert (again["verdict"], again["first_findings"]) == ("ok", [])
    assert again["records"] == 3 * len(EVENTS)
    consumed = {m.value() for m in cluster.consume(topic, len(EVENTS))}
    assert consumed == {value for _, value in EVENTS}
