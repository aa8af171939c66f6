"""The jars of Delta Lake and Iceberg out of Maven Central, and readers of tables, fetched once into .logyard/tables.

Readers that nobody here wrote are in Pythons of their own: only tests want them.
"""

import shutil
from functools import partial
from pathlib import Path

from tests.support.needed import fetched, lacks, python_with, run

CACHE = Path(__file__).resolve().parents[2] / ".logyard" / "tables"
_DELTA = "4.4.0"
# Delta's is built for the Spark that is pinned. Of Iceberg only the core is used, which any Spark's runtime brings:
# there is none for Spark 4.2 yet.
ARTIFACTS = {
    "delta": [
        f"io.delta:delta-spark_4.2_2.13:{_DELTA}",
        *(f"io.delta:delta-{n}:{_DELTA}" for n in ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")),
    ],
    "iceberg": ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"],
}
# The newest Spark that Iceberg has a runtime for.
READERS = {
    "pyiceberg": ["pyiceberg[pyarrow]==0.12.0"],
    "duckdb": [f"{name}==1.5.5" for name in ("duckdb", "duckdb-extension-avro", "duckdb-extension-iceberg")],
    "spark": ["pyspark==4.1.4"],
}


def python_or_skip(reader: str) -> str:
    """A Python that has this reader; the test lacks it where it cannot be had."""
    packages = READERS[reader]
    place = CACHE / f"{reader}-{packages[0].rpartition('=')[2]}"
    return str(fetched(place, lambda aside: python_with(aside, packages)) / "bin" / "python")


def jars_or_skip(name: str) -> str:
    """The jars by commas, as Spark wants them; the test lacks them where they cannot be had."""
    maven = shutil.which("mvn")
    if maven is None:
        lacks("mvn is missing: Maven fetches the jars of the tables")
    jars = []
    for artifact in ARTIFACTS[name]:
        _, short, version = artifact.split(":")
        folder = fetched(CACHE / f"{short}-{version}", partial(_copy, maven, artifact))
        jars.append(str(folder / f"{short}-{version}.jar"))
    return ",".join(jars)


def _copy(maven: str, artifact: str, folder: Path) -> None:
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    run([maven, "-q", "-B", plugin, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], artifact)
