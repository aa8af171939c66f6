"""A Spark driver that writes into a secured cluster and keeps what Spark tells others of it.

secured_driver.py BOOTSTRAP TOPIC SECURITY DIRECTORY

SECURITY is the file with the login. DIRECTORY gets the event log (`events`), the environment page and the SQL page of
the UI (`environment.json`, `sql.json`), and what executors wrote (`work`); the plans of a read are printed.
"""

import os
import shutil
import sys
import traceback
import urllib.request
from pathlib import Path

import pyspark

from tests.support.sink_driver import rows, session


def main() -> None:
    from logyard.spark_jobs import source

    bootstrap, topic, security, directory = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    home = Path(directory)
    (home / "events").mkdir(parents=True)
    spark = session(
        "local-cluster[1,2,1024]",
        **{
            # A wrong password is waited for once, not in four attempts of each task.
            "spark.task.maxFailures": "1",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (home / "events").as_uri(),
        },
    )
    source.register(spark)
    options = {"kafka.bootstrap.servers": bootstrap, "security": security}
    try:
        rows(spark, "secured", 2).write.format("logyard").mode("append").options(
            topic=topic, writeId="secured", verifyWaitS="10", **options
        ).save()
        print("written")
    except Exception:
        traceback.print_exc()
    try:
        found = spark.read.format("logyard").options(subscribe=topic, **options).load()
        found.explain(True)
        found.count()  # Apache Kafka has no leases: it fails, and says why
    except Exception:
        traceback.print_exc()
    context = spark.sparkContext
    for page in ("environment", "sql?details=true&planDescription=true"):
        url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{page}"
        with urllib.request.urlopen(url, timeout=180) as answer:
            (home / f"{page.partition('?')[0]}.json").write_bytes(answer.read())
    application = context.applicationId  # a stopped context does not know it any more
    spark.stop()
    # Where workers of a local cluster put the files of executors cannot be chosen.
    shutil.move(Path(pyspark.__file__).parent / "work" / application, home / "work")


if __name__ == "__main__":
    main()
