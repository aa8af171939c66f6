"""The Spark jobs as a user submits them, against three real brokers."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.lengths import IS_PROOF
from tests.support.real_cluster import RealCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
PARTITIONS = 2
EVENTS = [(b"key%d" % (i % 97), b"value %d of %d" % (i, i % 97) * 4) for i in range(12_000)]


def submit(
    job: str,
    cluster: RealCluster,
    tmp_path: Path,
    *arguments: str,
    status: int = 0,
    settings: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    output = tmp_path / f"{job}.json"
    output.unlink(missing_ok=True)
    binaries = Path(sys.executable).parent
    command = [str(binaries / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]
    for name, value in (settings or {}).items():
        command += ["--conf", f"{name}={value}"]
    command += [str(ROOT / "spark_jobs" / f"{job}.py"), "--bootstrap-server", cluster.bootstrap]
    command += ["--cluster-file", str(cluster.directory / "cluster.json"), "--output", str(output), *arguments]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = f"{binaries}{os.pathsep}{environment['PATH']}"
    environment["NUMBA_CACHE_DIR"] = os.environ.get("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == status, f"{job}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    summary = dict(json.loads(done.stdout.strip().splitlines()[-1]))
    assert json.loads(output.read_text()) == summary
    for token in cluster.directory.rglob("http.token"):
        assert token.read_text().strip() not in done.stdout + done.stderr
    return summary


def test_audit_compact_export(cluster: RealCluster, tmp_path: Path) -> None:
    cluster.create("jobs", PARTITIONS, 3, cleanup_policy="compact", segment_bytes="65536", min_insync_replicas="2")
    acknowledged = cluster.produce("jobs", EVENTS, **{"batch.size": 8192, "compression.type": "lz4"})
    assert len(acknowledged) == len(EVENTS)

    if IS_PROOF:  # elsewhere the compacted topic alone is audited: each job takes some seconds to start
        sound = submit("audit", cluster, tmp_path, "--topic", "jobs")
        assert (sound["verdict"], sound["first_findings"]) == ("ok", [])
        assert sound["records"] == 3 * len(EVENTS)

    compacted = submit("compact", cluster, tmp_path, "--topic", "jobs")
    assert (compacted["compacted"], compacted["replicas_compacted"]) == (PARTITIONS, 3 * PARTITIONS)
    assert compacted["records_after"] < compacted["records_before"]
    ends = {int(tp.rpartition("-")[2]): d["range_end"] for tp, d in compacted["details"].items()}
    expected = expected_records(acknowledged, ends)
    consumed = {(m.partition(), m.offset()): (m.key(), m.value()) for m in cluster.consume("jobs", len(expected))}
    assert consumed == expected

    again = submit("audit", cluster, tmp_path, "--topic", "jobs")
    assert (again["verdict"], again["first_findings"]) == ("ok", [])
    assert again["records"] == 3 * len(expected)

    target = tmp_path / "exported"
    first = submit("export", cluster, tmp_path, "--topic", "jobs", "--destination", str(target))
    rows = pq.read_table(target / "data").to_pylist()
    assert {(r["partition"], r["offset"]): (r["key"], r["value"]) for r in rows} == expected
    assert first["rows"] == len(rows) == len(expected)
    if IS_PROOF:  # elsewhere that is seen of exports into a store and into a table
        second = submit("export", cluster, tmp_path, "--topic", "jobs", "--destination", str(target))
        assert (second["rows"], second["files"]) == (0, 0)


@pytest.mark.long
def test_keys_that_do_not_fit_one_task_are_shuffled(cluster: RealCluster, tmp_path: Path) -> None:
    """97 keys where a task may hold 90."""
    events = EVENTS[:4000]
    cluster.create("wide", 1, 3, cleanup_policy="compact", segment_bytes="32768", min_insync_replicas="2")
    acknowledged = cluster.produce("wide", events, **{"batch.size": 8192})
    assert len(acknowledged) == len(events)

    done = submit("compact", cluster, tmp_path, "--topic", "wide", "--max-keys", "90")
    details = done["details"]["wide-0"]
    assert (details["plan"], details["replicas"]) == ("shuffle", sorted(cluster.replica_dirs("wide", 0)))
    assert details["keys"] == len({key for key, _ in events})
    expected = expected_records(acknowledged, {0: details["range_end"]})
    assert len(expected) < len(events) // 2
    consumed = {(0, m.offset()): (m.key(), m.value()) for m in cluster.consume("wide", len(expected))}
    assert consumed == expected, "the last of each key at its old offset"
    digests = cluster.digests("wide", 0)
    assert len(digests) == 3
    assert len(set(digests.values())) == 1, "all replicas hold the same bytes"


def expected_records(
    acknowledged: dict[tuple[int, bytes], int], ends: dict[int, int]
) -> dict[tuple[int, int], tuple[bytes, bytes]]:
    """The last event of each key below each partition's end, at its offset, and all above."""
    keys = {value: key for key, value in EVENTS}
    by_partition: dict[int, dict[int, tuple[bytes, bytes]]] = defaultdict(dict)
    for (partition, value), offset in acknowledged.items():
        by_partition[partition][offset] = keys[value], value
    kept = {}
    for partition, records in by_partition.items():
        last = {key: offset for offset, (key, _) in sorted(records.items()) if offset < ends[partition]}
        for offset, record in records.items():
            if offset >= ends[partition] or last[record[0]] == offset:
                kept[partition, offset] = record
    return kept
