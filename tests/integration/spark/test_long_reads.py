"""A batch read of a live cluster that takes longer than its leases live, in a driver of its own."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logyard.spark_jobs import cluster as clusters
from tests.support.real_cluster import RealCluster

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

# One core: the second partition's task begins when the first one's has slept for longer than the time to live.
DRIVER = """
import json, sys, time
from pyspark import TaskContext
from pyspark.sql import SparkSession
from logyard.spark_jobs import source

how, cluster_file = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
source.register(spark)
if how != "kept":  # as it was: nobody but the tasks themselves
    spark.dataSource.register(source.PushingDataSource)
read = spark.read.format("logyard").option("subscribe", f"slow-{how}").option("clusterFile", cluster_file)
frame = read.option("leaseTtlS", "5").option("columns", "partition,offset").load()

def slowly(batches):
    yield from batches
    if TaskContext.get().partitionId() == 0:
        time.sleep(8)

rows = frame.mapInArrow(slowly, frame.schema).collect()
print(json.dumps(sorted([row["partition"], row["offset"]] for row in rows)))
"""


def runs(cluster: RealCluster) -> list[str]:
    """Whose leases there are and were in the last ten minutes, by the first word of their runs' own names."""
    arguments = argparse.ArgumentParser()
    clusters.add_arguments(arguments)
    looked = clusters.connect(arguments.parse_args(["--cluster-file", str(cluster.directory / "cluster.json")]))
    found = [row for broker in looked.brokers.values() for row in broker.call("GET", "/leases")["leases"]]
    names = [str(row["run_id"]).rpartition("/")[2] for row in found if row["topic"].startswith("slow")]
    return [name.partition("-")[0] for name in names]


@pytest.mark.parametrize("how", ["kept", "again"])
def test_every_row_is_read(how: str, cluster: RealCluster, tmp_path: Path) -> None:
    cluster.create(f"slow-{how}", 2, 3)
    cluster.produce(f"slow-{how}", [(b"k%d" % n, b"v") for n in range(200)])
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, str(script), how, str(cluster.directory / "cluster.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(rows) == 200
    assert len({tuple(row) for row in rows}) == 200
    assert ("task" in runs(cluster)) is (how == "again"), "whether tasks had to take a lease again"
