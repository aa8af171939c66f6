"""A real standalone Spark cluster whose workers have no checkout on their path and do not see the brokers' disks."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from logyard.cli import main as entry
from logyard.spark_jobs import shipping
from tests.support.real_cluster import RealCluster
from tests.support.standalone_spark import StandaloneSpark

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

EVENTS = [(b"key%d" % (i % 31), b"value %d" % i * 5) for i in range(4_000)]


class Standalone(StandaloneSpark):
    """Its Python sees libraries, but no Logyard; its workers do not see the directory `hidden`."""

    def __init__(self, directory: Path, hidden: Path) -> None:
        super().__init__(directory)
        self._hidden = hidden
        self.python = directory / "bare-python"
        site = Path(pyspark.__file__).parents[1]
        # -S: site-packages without what an editable install puts beside them.
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} -S "$@"\n')
        self.python.chmod(0o755)
        self.environment |= {
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            "NUMBA_CACHE_DIR": str(directory / "numba"),
        }
        self.environment.pop("PYTHONPATH", None)

    def worker_command(self, words: list[str]) -> list[str]:
        if not can_hide():
            return words
        line = f"mount -t tmpfs none {shlex.quote(str(self._hidden))} && exec {shlex.join(words)}"
        return ["unshare", "--mount", "sh", "-c", line]


def can_hide() -> bool:
    """Whether this user may give a process mounts of its own (root may)."""
    return shutil.which("unshare") is not None and subprocess.run(["unshare", "--mount", "true"]).returncode == 0


@pytest.fixture
def spark_cluster(cluster: RealCluster, tmp_path: Path) -> Iterator[Standalone]:
    with Standalone(tmp_path, cluster.directory) as running:
        yield running


def submit(
    spark: Standalone,
    made: Path,
    job: str,
    cluster: RealCluster,
    *arguments: str,
    options: tuple[str, ...] = (),
) -> dict[str, Any]:
    done = submitted(spark, made, job, cluster, *arguments, options=options)
    assert done.returncode == 0, f"{job}: {done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def submitted(
    spark: Standalone, made: Path, job: str, cluster: RealCluster, *arguments: str, options: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run a job to its end, in the directory `made`."""
    command = [str(Path(spark.environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", spark.master]
    command += ["--executor-memory", "1g", "--executor-cores", "1", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]
    command += options or ("--py-files", str(made / "logyard-spark.zip"))
    command += [str(made / f"{job}.py"), "--cluster-file", str(cluster.directory / "cluster.json"), *arguments]
    return subprocess.run(
        command, env=spark.environment, capture_output=True, text=True, timeout=500, check=False, cwd=made
    )


def test_jobs_out_of_a_zip_over_the_network(cluster: RealCluster, spark_cluster: Standalone, tmp_path: Path) -> None:
    seen = subprocess.run([spark_cluster.python, "-c", "import logyard"], capture_output=True, cwd=tmp_path)
    assert seen.returncode != 0, "the workers' Python has Logyard already: nothing would be proven"
    made = tmp_path / "made"
    shipping.write_zip(made / "logyard-spark.zip")
    for job in shipping.JOBS:
        shipping.write_job(made, job)
    cluster.create("far", 2, 3, cleanup_policy="compact", segment_bytes="32768")
    acknowledged = cluster.produce("far", EVENTS, **{"batch.size": 4096})

    compacted = submit(spark_cluster, made, "compact", cluster, "--topic", "far")
    assert compacted["replicas_compacted"] == 6
    sound = submit(spark_cluster, made, "audit", cluster, "--topic", "far")
    assert (sound["verdict"], sound["first_findings"]) == ("ok", [])

    if can_hide():  # a directory that each worker has for itself: nothing is committed, and one line says why
        alone = cluster.directory / "alone"
        refused = submitted(spark_cluster, made, "export", cluster, "--topic", "far", "--destination", str(alone))
        assert refused.returncode == 1, refused.stderr[-5000:]
        # spark-submit hands on what its Python says on stderr as stdout.
        line = refused.stdout.strip().splitlines()[-1]
        assert line.startswith("export.py: an executor wrote ")
        assert f"executors and driver do not share {alone}: nothing was committed" in line
        assert not [*alone.glob("_manifest/*"), *alone.rglob("*.parquet")]

    # Relative to where the driver was started; workers have directories of their own.
    target = made / "exports" / "far"
    done = submit(spark_cluster, made, "export", cluster, "--topic", "far", "--destination", "exports/far")
    rows = pq.read_table(target / "data").to_pylist()
    assert done["rows"] == len(rows) == sound["records"] // 3
    last = {value[0]: value[1] for value in EVENTS}
    exported = {r["value"]: (r["partition"], r["offset"]) for r in rows}
    assert set(last.values()) <= set(exported), "the last value of every key is there"
    assert all(acknowledged[p, value] == offset for value, (p, offset) in exported.items())


def test_libraries_out_of_a_packed_environment(
    cluster: RealCluster, spark_cluster: Standalone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `logyard spark package --with-env` makes, used by the options of the line that it prints: executors have
    neither Logyard nor a library but what that brings."""
    bare = subprocess.run([os.path.realpath(sys.executable), "-c", "import numpy"], capture_output=True, cwd=tmp_path)
    assert bare.returncode != 0, "the Python below has the libraries already: nothing would be proven"
    made = tmp_path / "made"
    assert entry.main(["spark", "package", "--with-env", "--output", str(made)]) == 0
    line = shlex.split(capsys.readouterr().out.splitlines()[-1])
    options = tuple(line[line.index("--py-files") : line.index(str(made / "compact.py"))])
    assert "--archives" in options
    del spark_cluster.environment["PYSPARK_PYTHON"], spark_cluster.environment["PYSPARK_DRIVER_PYTHON"]

    cluster.create("packed", 1, 3, cleanup_policy="compact", segment_bytes="32768")
    cluster.produce("packed", EVENTS, **{"batch.size": 4096, "compression.type": "lz4"})
    compacted = submit(spark_cluster, made, "compact", cluster, "--topic", "packed", options=options)
    assert compacted["replicas_compacted"] == 3
    unpacked = list(tmp_path.glob("work/app-*/*/env/bin/python"))
    assert unpacked, "an executor unpacked it"
