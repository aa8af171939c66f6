"""Programs that nobody here wrote read a table of an Iceberg catalog, each in a process of its own."""

import json
import os
import subprocess
from typing import Any

DUCKDB = """
import duckdb, json, sys
from pathlib import Path
import duckdb_extension_avro, duckdb_extension_iceberg
for package in (duckdb_extension_avro, duckdb_extension_iceberg):
    duckdb.load_extension(str(next(Path(package.__file__).parent.rglob("*.duckdb_extension"))))
rows = duckdb.sql(f"select epoch_ms(timestamp), \\"offset\\", key, value from iceberg_scan('{sys.argv[1]}')").fetchall()
print(json.dumps([[ms, offset, key.decode(), value.decode()] for ms, offset, key, value in rows]))
"""
SPARK = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import unix_millis
jars, uri, credential, table = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
for name, value in {
    "": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": uri, ".credential": credential,
    ".oauth2-server-uri": f"{uri}/v1/oauth/tokens",
}.items():
    builder = builder.config(f"spark.sql.catalog.yard{name}", value)
found = builder.getOrCreate().table(f"yard.{table}")
rows = found.select(unix_millis("timestamp"), "offset", "key", "value").collect()
print(json.dumps([[ms, offset, bytes(key).decode(), bytes(value).decode()] for ms, offset, key, value in rows]))
"""


def read(command: list[str]) -> list[list[Any]]:
    """What a reader in a process of its own prints, by offsets."""
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    rows: list[list[Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return sorted(rows, key=lambda row: row[1])
