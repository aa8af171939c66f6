"""Loops that were compiled beforehand, as when an image is built: no job compiles another. Spark's classes likewise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logyard.spark_jobs import driver_jvm
from tests.integration.spark.test_spark_jobs import EVENTS, submit
from tests.support.real_cluster import RealCluster

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


def test_jobs_find_all_that_was_compiled(cluster: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = tmp_path / "kernels"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(kernels))
    subprocess.run([sys.executable, "-P", "-m", "logyard.spark_jobs.warm"], env=os.environ, check=True, timeout=600)
    warm = compiled(kernels)
    assert len(warm) > 40

    keys = {"cleanup_policy": "compact", "segment_bytes": "65536", "min_insync_replicas": "2"}
    for topic in ("plain", "wide"):
        cluster.create(topic, 1, 3, **keys)
        cluster.produce(topic, EVENTS, **{"batch.size": 8192, "compression.type": "lz4"})
    # A JVM that cannot use the archive does not start with -Xshare:on.
    options = f"{driver_jvm.options()} -Xshare:on"
    submit("audit", cluster, tmp_path, "--topic", "plain", settings={driver_jvm.SETTING: options})
    submit("compact", cluster, tmp_path, "--topic", "plain")
    submit("compact", cluster, tmp_path, "--topic", "wide", "--max-keys", "90")
    submit("export", cluster, tmp_path, "--topic", "plain", "--destination", str(tmp_path / "rows"))
    upsert = ["--mode", "upsert", "--destination", str(tmp_path / "latest")]
    submit("export", cluster, tmp_path, "--topic", "plain", *upsert)
    assert compiled(kernels) == warm


def compiled(kernels: Path) -> set[str]:
    """Return the files of compiled code, one for each loop and the types that it takes."""
    return {path.name for path in kernels.rglob("*.nbc")}
