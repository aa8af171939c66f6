"""The columns of `spark.read.format("logyard")` beside those of Spark's own Kafka source."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

BOTH = """
import json, sys
from pyspark.sql import SparkSession
from logyard.spark_jobs import source
jars, path = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
source.register(spark)
options = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", "includeHeaders": "true"}
theirs = spark.read.format("kafka").options(**options).load().schema
ours = spark.read.format("logyard").option("subscribe", "t").load(path).schema
print(json.dumps([{f.name: f.dataType.simpleString() for f in s.fields} for s in (theirs, ours)]))
spark.stop()
"""


def test_every_column_of_the_kafka_source_is_there_with_its_type(tmp_path: Path) -> None:
    jars = ",".join(str(jar) for jar in sorted(kafka.jars_or_skip("spark").glob("*.jar")))
    write_partition(tmp_path, "t-0", [[batch([Rec(0, b"k", b"v")])]])
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", BOTH, jars, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    theirs, ours = json.loads(done.stdout.strip().splitlines()[-1])
    assert set(theirs) >= {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"}
    assert {name: ours.get(name) for name in theirs} == theirs
