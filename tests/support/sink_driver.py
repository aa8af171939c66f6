"""A Spark driver that writes with `format("logyard")`; a process of its own, so that it can be killed.

sink_driver.py ACTION BOOTSTRAP TOPIC DIRECTORY [ARGUMENT …]

kills                       one write for each step at which a task dies (dying_sink.STEPS)
batch WRITE_ID PARTITIONS   one write
speculate MASTER SENT …     for each SENT one write with Spark's speculation: the first attempt at a partition stops
                            after so many rows, until a second one runs
stream PARTITIONS [STEP]    a query over DIRECTORY/in, one file a micro-batch, to its end; the driver dies at STEP
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

ROWS = 3000


def session(master: str, **settings: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **settings,
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def rows(spark: Any, write_id: str, partitions: int) -> Any:
    """Rows whose values are `WRITE_ID:number`."""
    return spark.range(0, ROWS, 1, partitions).selectExpr(
        "cast(id as string) as key", f"concat('{write_id}:', cast(id as string)) as value"
    )


def write(frame: Any, bootstrap: str, topic: str, write_id: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "writeId": write_id, "verifyWaitS": "20"}
    frame.write.format("logyard").mode("append").options(**options).save()


def kills(bootstrap: str, topic: str, directory: Path, first: str, last: str) -> None:
    from tests.support import dying_sink

    spark = session("local[2,4]")
    for number in range(int(first), int(last)):
        step = dying_sink.STEPS[number]
        marker = directory / f"killed-{number}"
        dying_sink.register(spark, dying_sink.Death(step, 1, str(marker)))
        write(rows(spark, f"kill{number}", 3), bootstrap, topic, f"kill{number}")
        assert marker.exists(), f"no task died at {step!r}"


def batch(bootstrap: str, topic: str, directory: Path, write_id: str, partitions: str) -> None:
    from logyard.spark_jobs import source

    spark = session("local[2,4]")
    source.register(spark)
    (directory / f"ready-{os.getpid()}").touch()
    while len(list(directory.glob("ready-*"))) < 2:  # both drivers begin together
        time.sleep(0.05)
    write(rows(spark, write_id, int(partitions)), bootstrap, topic, write_id)


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.executor.memory": "512m",
}
SLOW = 0  # the work partition whose first attempt stops


def speculate(bootstrap: str, topic: str, directory: Path, master: str, *stops: str) -> None:
    from logyard.spark_jobs import source

    spark = session(master, **SPECULATION, **{"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]})
    source.register(spark)
    for sent in stops:
        frame = rows(spark, f"slow{sent}", 3)
        slowly = one_slow_attempt(str(directory), int(sent))
        write(frame.mapInPandas(slowly, frame.schema), bootstrap, topic, f"slow{sent}")
    spark.stop()


def one_slow_attempt(place: str, sent: int) -> Any:
    """Return a step of a task that hands rows on. What attempts do is told by empty files in `place`: `first-SENT`,
    `second-SENT`, `resumed-SENT`."""

    def slowly(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        first, second = Path(place, f"first-{sent}"), Path(place, f"second-{sent}")
        is_slow = context.partitionId() == SLOW and context.attemptNumber() == 0
        resumed = Path(place, f"resumed-{sent}")
        if context.partitionId() == SLOW:
            (first if is_slow else second).touch()
            while not is_slow and not resumed.exists():  # a quick one would end before the slow one has looked
                time.sleep(0.01)
        for batch in batches:
            if is_slow:
                yield batch.iloc[:sent]
                while not second.exists():
                    time.sleep(0.05)
                resumed.touch()
                batch = batch.iloc[sent:]
            yield batch

    return slowly


def stream(bootstrap: str, topic: str, directory: Path, partitions: str, step: str = "") -> None:
    from logyard.spark_jobs import source
    from tests.support import dying_sink

    spark = session("local[2]", **{"spark.sql.shuffle.partitions": partitions})
    source.register(spark)
    if step:
        pids = [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]
        death = dying_sink.Death(step, 1, str(directory / f"died {step}"), pids)
        dying_sink.register(spark, death)
    read = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(directory / "in"))
    writer = read.repartition(int(partitions), "value").writeStream.format("logyard").trigger(availableNow=True)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "verifyWaitS": "20"}
    query = writer.options(**options, checkpointLocation=str(directory / "checkpoint")).start()
    query.awaitTermination()


def main() -> None:
    action, bootstrap, topic, directory, *rest = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    {"kills": kills, "batch": batch, "speculate": speculate, "stream": stream}[action](
        bootstrap, topic, Path(directory), *rest
    )


if __name__ == "__main__":
    main()
