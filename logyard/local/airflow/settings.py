"""Airflow's settings, all as environment variables: folders, users, DAGs, and connections to the cluster."""

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from logyard.local import files
from logyard.local.ports import HOST

USERS = {"admin": "admin", "ops": "op", "viewer": "viewer"}  # name → role of the simple auth manager
CONNECTION = "logyard_default"
NO_LOGIN: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one Airflow; `kernels` has the compiled kernels of the Spark jobs, `own_dags` the user's DAGs."""

    directory: Path
    kernels: Path
    own_dags: Path | None = None

    @property
    def passwords(self) -> Path:
        return self.directory / "passwords.json"

    @property
    def database(self) -> Path:
        return self.directory / "airflow.db"

    @property
    def plugins(self) -> Path:
        """Always empty: the plugin is registered by its entry point only."""
        return self.directory / "plugins"

    def prepare(self) -> None:
        """Create the folders, and passwords and keys that do not exist yet, readable only by their owner."""
        for folder in (self.directory, self.plugins, self.kernels):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.own_dags is not None:
            self.own_dags.mkdir(parents=True, exist_ok=True)
        if not self.passwords.exists():
            words = {name: secrets.token_urlsafe(15) for name in USERS}
            files.write_json(self.passwords, words, files.PRIVATE)
        if not self._keys_file.exists():
            keys = {
                # Without these, each component would create its own and refuse the others' tokens.
                "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
                "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(48),
            }
            files.write_json(self._keys_file, keys, files.PRIVATE)

    def password(self, user: str = "admin") -> str:
        return str(files.read_json(self.passwords)[user])

    def keys(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in files.read_json(self._keys_file).items()}

    @property
    def _keys_file(self) -> Path:
        return self.directory / "keys.json"


def dags_folder() -> Path:
    """Return the folder of the packaged DAGs, with links resolved."""
    return (Path(__file__).resolve().parents[2] / "dags").resolve()


def bundles(own_dags: Path | None) -> str:
    """Return Airflow's list of DAG bundles as JSON: the packaged DAGs, and the user's own beside them."""
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    paths = {"dags-folder": dags_folder()} | ({} if own_dags is None else {"own-dags": own_dags})
    return json.dumps(
        [{"name": name, "classpath": local, "kwargs": {"path": str(path)}} for name, path in paths.items()]
    )


def environment(home: Home, port: int, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for all components of Airflow and their tasks, based on `base`; `settings` go last.

    Settings in `base` of another Airflow (AIRFLOW…) are left out.
    """
    url = f"http://{HOST}:{port}"
    kept = {name: value for name, value in base.items() if not name.startswith("AIRFLOW")}
    programs = str(Path(sys.executable).parent)  # spark-submit, logyard
    return {
        **kept,
        **_direct(kept),
        **home.keys(),
        "PATH": os.pathsep.join([programs, kept.get("PATH", os.defpath)]),
        "AIRFLOW_HOME": str(home.directory),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder()),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": bundles(home.own_dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home.plugins),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "8",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.passwords),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home.database}",
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        # A new file is found after 5 s, and one that has changed is read at once. Only what a file imports or reads
        # waits for this, and the watchers of a DAG that was turned on; *Reparse Dag* is at once. Airflow's default, 30,
        # costs 8 to 12 s of CPU each time for the packaged DAGs, which do not change: a third of a core at rest.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
        # *Admin → Connections* has the button *Test*. Only who may edit connections may press it.
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        # A worker notices its task's end only at its next heartbeat. At the default of 5 s, a task that deferred and
        # resumed sooner counts as killed: the scheduler learns of the first part's end after it queued the second.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home.directory / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        # Spark, in the tasks: this very Python, loopback only, scratch files where `down` finds them.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(home.directory / "spark"),
        # Compiled kernels outlive the platform, so that the next one need not compile them again.
        "NUMBA_CACHE_DIR": str(home.kernels),
        "PYTHONUNBUFFERED": "1",
        **settings,
    }


def _direct(base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which no proxy is asked for what is on loopback: tasks report to the API server there."""
    known = base.get("no_proxy") or base.get("NO_PROXY")
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, [known, HOST, "localhost"])))


def connections(
    description: Mapping[str, Any],
    cluster_file: Path,
    spark_master: str = "local[2]",
    login: Mapping[str, str] = NO_LOGIN,
) -> dict[str, str]:
    """Return the connections of a local cluster, `logyard_default` and `spark_default`, as environment variables.

    `description` is the content of cluster.json. The command that starts a dead broker is a list of arguments, in which
    the operators replace {broker_id}. `login` has the names of `login.security`; the variables contain its password.
    """
    command = str(Path(sys.executable).with_name("logyard"))
    start, stop, status = (
        [command, "cluster", verb, "--dir", str(cluster_file.parent), "--id", "{broker_id}"]
        for verb in ("start-broker", "stop-broker", "broker-status")
    )
    # A hung broker is killed before it is started again.
    stop += ["--signal", "KILL"]
    logyard = {
        "conn_type": "logyard",
        "description": "The cluster that Logyard has started on this machine",
        "host": description["bootstrap"],
        "login": login.get("username"),
        "password": login.get("password"),
        "extra": {
            "zookeeper": description["zookeeper"],
            "cluster_file": str(cluster_file),
            "broker_start_command": start,
            **{name: value for name, value in login.items() if name not in ("username", "password")},
        },
    }
    spark = {
        "conn_type": "spark",
        "description": "Spark in the tasks' own processes",
        "host": spark_master,
        "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
    }
    return {
        f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(logyard),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        # A connection's commands run only if the configuration allows it; here it does.
        "AIRFLOW__LOGYARD__BROKER_START_COMMAND": json.dumps(start),
        "AIRFLOW__LOGYARD__BROKER_STOP_COMMAND": json.dumps(stop),
        "AIRFLOW__LOGYARD__BROKER_STATUS_COMMAND": json.dumps(status),
    }
