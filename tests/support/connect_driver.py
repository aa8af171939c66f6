"""A program that uses the data source over Spark Connect: `connect_driver.py CLUSTER_FILE TOPIC COPY DIRECTORY`.

Its session has no context of Spark. The last line is JSON: the session's module, and the rows of a batch read.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    cluster_file, topic, copy, directory = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from logyard.spark_jobs import source

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    source.register(spark)
    where = {"clusterFile": cluster_file}
    batch = spark.read.format("logyard").options(**where, subscribe=topic).load()
    stream = spark.readStream.format("logyard").options(**where, subscribe=topic, columns="key,value").load()
    found = {"session": type(spark).__module__, "batch": batch.where("offset >= 10").count()}
    rows = spark.createDataFrame([("one", "by a batch")], "key string, value string")
    for _ in range(2):  # the second finds that all is written
        rows.write.format("logyard").mode("append").options(**where, topic=copy, writeId="connect").save()
    sent = stream.writeStream.format("logyard").options(**where, topic=copy).trigger(availableNow=True)
    sent.option("checkpointLocation", str(Path(directory, "sent"))).start().awaitTermination()
    print(f"\n{json.dumps(found)}", flush=True)
    spark.stop()


main()
