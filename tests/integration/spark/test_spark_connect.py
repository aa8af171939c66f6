"""The data source and the sink over Spark Connect; the jobs refuse it (tests/unit/spark_jobs/test_entry_points.py)."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import values

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DRIVER = Path(__file__).resolve().parents[2] / "support" / "connect_driver.py"
EVENTS = [(b"key%d" % (number % 7), b"value %d" % number) for number in range(500)]


def test_reads_and_writes_of_a_session_without_a_context(cluster: RealCluster, tmp_path: Path) -> None:
    for topic in ("connect", "connect-copy"):
        cluster.create(topic, 1, 3)
    cluster.produce("connect", EVENTS)
    words = [sys.executable, "-P", str(DRIVER), str(cluster.directory / "cluster.json"), "connect", "connect-copy"]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*words, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found == {"session": "pyspark.sql.connect.session", "batch": len(EVENTS) - 10}
    wanted = Counter([*(value for _, value in EVENTS), b"by a batch"])
    # A commit is answered before its markers are written.
    eventually(lambda: values(cluster.bootstrap, "connect-copy") == wanted, "each is there once")
