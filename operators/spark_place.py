"""Where Spark runs, by the Spark connection, and which settings and variables a job needs there.

Rule 1: on this machine (`local[*]`, or a master at a loopback address) the driver stays on loopback. Elsewhere the
        driver's address, executors' Python and their environment are Spark's and the user's: nothing is set that a
        setting, `spark-defaults.conf` or the environment may say.
Rule 2: in cluster deploy mode the driver runs on a host that does not share this one's files. Files go with the
        submission (`--files`) and are found by name; the summary stays in the driver's log.
Rule 3: variables for spark-submit go only where the Spark provider takes them: never to a driver on a standalone
        cluster. Spark itself runs no Python driver there, so that is refused before anything is submitted.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from logyard.admin.settings import BadSettings
from logyard.operators.spark_provider import SparkSubmitHook

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
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

    def check(self) -> None:
        """Raise BadSettings if Spark cannot run Python there."""
        if self.is_cluster_mode and self.master.startswith("spark://"):
            raise BadSettings(
                "Spark runs no Python driver inside a standalone cluster: set deploy-mode to client in the Spark "
                "connection"
            )

    def settings(self) -> dict[str, Any]:
        """Return the settings of Spark that belong to the place."""
        return dict(LOOPBACK) if self.is_here and not self.is_cluster_mode else {}

    def environment(self) -> dict[str, str]:
        """Return the variables for spark-submit, empty in cluster mode."""
        if self.is_cluster_mode:
            return {}
        variables = {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # Executors elsewhere use the path that somebody chose, if one is set here; else the path of this Python.
            "PYSPARK_PYTHON": sys.executable if self.is_here else os.environ.get("PYSPARK_PYTHON", sys.executable),
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR")
            or str(Path(tempfile.gettempdir()) / f"logyard-numba-{os.getuid()}"),
            # spark-submit is installed beside this Python; a task's PATH may lack that directory.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
        }
        if self.is_here:
            variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
        return variables

    def shipped(self, arguments: Mapping[str, Path]) -> tuple[list[str], list[str]]:
        """Return the words of options that name files, and the files that have to go with the submission."""
        words: list[str] = []
        for option, path in arguments.items():
            words += [option, path.name if self.is_cluster_mode else str(path)]
        return words, [str(path) for path in arguments.values()] if self.is_cluster_mode else []
