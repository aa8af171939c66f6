"""Where Spark runs, by the Spark connection, and which settings and variables a job needs there.

Rule 1: on this machine (`local[*]`, or a master at a loopback address) the driver stays on loopback. Elsewhere the
        driver's address, executors' Python and their environment are Spark's and the user's: nothing is set that a
        setting, `spark-defaults.conf` or the environment may say.
Rule 2: in cluster deploy mode the driver runs on a host that does not share this one's files. Files go with the
        submission (`--files`) and are found by name; the summary stays in the driver's log.
Rule 3: variables for spark-submit go only where the Spark provider takes them: never to a driver on a standalone
        cluster, whose submission is another (`standalone_driver.py`).
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from logyard.operators.airflow_names import conf
from logyard.operators.fields import as_mapping
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.operators.spark_provider import SparkSubmitHook

_DEFAULTS = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.log.level": "WARN"}

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
PRIVATE_KERNELS = "LOGYARD_PRIVATE_KERNELS"  # broker/compiled/kernel_place.py reads it
_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """A master's URL as spark-submit takes it, and whether the driver runs in the cluster."""

    master: str
    is_cluster_mode: bool = False

    @classmethod
    def of_connection(cls, conn_id: str, deploy_mode: str | None) -> "SparkPlace":
        """Look up the Spark connection as its own hook does; `deploy_mode` overrides the connection's."""
        found = SparkSubmitHook(conn_id=conn_id, deploy_mode=deploy_mode)._connection
        return cls(str(found["master"]), found["deploy_mode"] == "cluster")

    @property
    def is_here(self) -> bool:
        """Whether all of Spark runs on this machine."""
        if self.master.startswith("local"):
            return True
        hosts = [urlsplit(f"//{one}").hostname for one in self.master.partition("://")[2].split(",")]
        return self.master.startswith("spark://") and all(host in _LOOPBACK_HOSTS for host in hosts)

    @property
    def is_standalone_cluster(self) -> bool:
        """Whether the driver runs inside a standalone cluster."""
        return self.is_cluster_mode and self.master.startswith("spark://")

    @property
    def is_yarn_cluster(self) -> bool:
        """Whether the driver runs inside YARN."""
        return self.is_cluster_mode and self.master.startswith("yarn")

    def settings(self) -> dict[str, Any]:
        """Return the settings of Spark that belong to the place."""
        if not self.is_here or self.is_cluster_mode:
            return {}
        from logyard.spark_jobs.driver_jvm import SETTING, options  # not where a DAG is parsed

        return LOOPBACK | {SETTING: options()}

    def settings_of_jobs(self) -> dict[str, Any]:
        """The settings of every job there: ours, overridden by `[logyard] spark_settings`. Raises BadSettings."""
        configured = conf.get(CONFIG_SECTION, "spark_settings", fallback="") or ""
        return {**_DEFAULTS, **self.settings(), **as_mapping("[logyard] spark_settings", configured)}

    def environment(self) -> dict[str, str]:
        """Return the variables for spark-submit, empty in cluster mode."""
        if self.is_cluster_mode:
            return {}
        from logyard.spark_jobs.driver_jvm import LAUNCHER  # not where a DAG is parsed

        variables = {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # Executors elsewhere use the path that somebody chose, if one is set here; else the path of this Python.
            "PYSPARK_PYTHON": sys.executable if self.is_here else os.environ.get("PYSPARK_PYTHON", sys.executable),
            PRIVATE_KERNELS: "1",
            # spark-submit is installed beside this Python; a task's PATH may lack that directory.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            **{name: os.environ.get(name, value) for name, value in LAUNCHER.items()},
        }
        if self.is_here:
            variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
        return variables

    def shipped(self, arguments: Mapping[str, Path]) -> tuple[list[str], list[str]]:
        """Return the words of options that name files, and the files that have to go with the submission."""
        words: list[str] = []
        for option, path in arguments.items():
            words += [option, path.name if self.is_cluster_mode else str(path)]
        goes_along = self.is_cluster_mode and not self.is_standalone_cluster
        return words, [str(path) for path in arguments.values()] if goes_along else []
