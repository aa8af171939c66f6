"""A Spark driver whose Kafka source and sink log in by delegation tokens alone.

token_driver.py MASTER BOOTSTRAP FROM TO AUTHORITY JARS DIRECTORY

Its log-in at the cluster for which it gets tokens is in spark-defaults.conf, as a user would give it. `local[N]`: Spark
gets the tokens itself, which needs its log-in by Kerberos. `local-cluster[…]`: Spark's own provider is called here, and
the scheduler gives executors, which are processes of their own, what it got.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyspark


def main() -> None:
    from pyspark.sql import SparkSession

    master, bootstrap, source, target, authority, jars, directory = sys.argv[1:]
    session = SparkSession.builder.master(master)
    for key, value in {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        session = session.config(key, value)
    spark = session.getOrCreate()
    if not master.startswith("local["):
        hand_out_tokens(spark)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": authority,
    }
    read = {**options, "subscribe": source, "startingOffsets": "earliest"}
    found = spark.read.format("kafka").options(**read).load()
    values = sorted(bytes(row.value).decode() for row in found.collect())
    query = (
        spark.readStream.format("kafka")
        .options(**read)
        .load()
        .selectExpr("key", "value")
        .writeStream.format("kafka")
        .options(**options, topic=target, checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps(values))
    application = spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


def hand_out_tokens(spark: Any) -> None:
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    credentials = jvm.org.apache.hadoop.security.Credentials()
    provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
    provider.obtainDelegationTokens(context.hadoopConfiguration(), context.conf(), credentials)
    assert credentials.numberOfTokens() == 1
    jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)
    stream = jvm.java.io.ByteArrayOutputStream()
    credentials.writeTokenStorageToStream(jvm.java.io.DataOutputStream(stream))
    context.schedulerBackend().updateDelegationTokens(stream.toByteArray())


if __name__ == "__main__":
    main()
