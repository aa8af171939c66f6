"""Run by another environment's Python: the jobs by its spark-submit, and the data source, on a cluster that runs.

    spark_inside.py CLUSTER_FILE TOPIC DIRECTORY jobs|source

Its last line is JSON. `jobs`: the summary of audit, compact and export. `source`: what each use of the format came to,
rows or the line that refuses it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS = ("spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")


def run_job(job: str, *arguments: str) -> "dict[str, Any]":
    import logyard

    script = Path(logyard.__file__).parent / "spark_jobs" / f"{job}.py"
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    command += [word for setting in SETTINGS for word in ("--conf", setting)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*command, str(script), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{job}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def jobs(cluster_file: str, topic: str, directory: Path) -> "dict[str, Any]":
    where = ("--cluster-file", cluster_file, "--topic", topic)
    return {
        "audit": run_job("audit", *where),
        "compact": run_job("compact", *where, "--force"),
        "export": run_job("export", *where, "--destination", str(directory / "exported")),
    }


def uses(cluster_file: str, topic: str, directory: Path) -> "dict[str, Any]":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for setting in SETTINGS:
        builder = builder.config(*setting.split("="))
    spark = builder.getOrCreate()
    try:
        from logyard.spark_jobs import source

        source.register(spark)
    except ImportError as problem:
        return {"register": str(problem)}

    def batch() -> int:
        read = spark.read.format("logyard").option("subscribe", topic).option("clusterFile", cluster_file).load()
        return int(read.where("partition = 0 and offset >= 10").count())

    def stream() -> int:
        read = spark.readStream.format("logyard").option("subscribe", topic).option("clusterFile", cluster_file).load()
        query = read.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
        running = query.option("checkpointLocation", str(directory / "checkpoint")).start()
        running.awaitTermination()
        return int(spark.sql("select * from seen").count())

    def write() -> str:
        rows = spark.createDataFrame([("k", "v")], "key string, value string")
        made = rows.write.format("logyard").mode("append").option("clusterFile", cluster_file)
        made.option("topic", f"{topic}-copy").option("writeId", "matrix").save()
        return "written"

    return {"batch": outcome(batch), "stream": outcome(stream), "write": outcome(write)}


def outcome(use: "Callable[[], Any]") -> Any:
    """What it returns; else the line of our own error in what Spark says."""
    try:
        return use()
    except Exception as problem:
        lines = [line.strip() for line in str(problem).splitlines() if "JobFailed: " in line]
        return lines[-1].partition("JobFailed: ")[2] if lines else f"{type(problem).__name__}: {problem}"


def main() -> None:
    cluster_file, topic, directory, what = sys.argv[1:]
    found = jobs if what == "jobs" else uses
    print("\n" + json.dumps(found(cluster_file, topic, Path(directory))))


main()
