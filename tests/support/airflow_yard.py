"""Three real brokers and the real Airflow that operates them, for the tests that need both.

    with running_yard(tmp_path, {"min.insync.replicas": "2"}, ["logyard_create_topics"]) as yard:
        run = yard.api.run_dag("logyard_create_topics", conf)
        returned = yard.result(run, task_id)
        os.kill(yard.pid(1), signal.SIGKILL)

`yard.cluster` is a RealCluster, `yard.api` Airflow's REST API, `yard.client()` our client of the cluster. It takes half
a minute to start: the tests of a module share one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.settings import ClusterSettings
from logyard.local.airflow.api import AirflowApi, Run, TaskView
from logyard.local.airflow.dag_files import DAGS, DagFile, install
from logyard.local.airflow.processes import Airflow
from logyard.local.airflow.settings import connections
from logyard.local.cluster import LocalCluster
from logyard.local.java import find_java
from logyard.local.layout import Settings
from tests.support.real_cluster import RealCluster


@dataclass(frozen=True, slots=True)
class Yard:
    """A cluster and the Airflow that operates it."""

    cluster: RealCluster
    airflow: Airflow
    api: AirflowApi
    dags: Path
    login: Mapping[str, str]
    restart: Callable[[], None]
    """Starts again what was killed of Airflow."""

    def client(self) -> "closing[KafkaClusterClient]":
        return closing(
            KafkaClusterClient(ClusterSettings.read(self.cluster.bootstrap, {"total_timeout_s": 30, **self.login}))
        )

    def result(self, run: Run, task: str) -> Any:
        return self.api.xcom(run, task)

    def task(self, run: Run, task_id: str) -> TaskView | None:
        return next((task for task in self.api.tasks(run) if task.task_id == task_id), None)

    def pid(self, broker: int) -> int:
        return next(int(b["pid"]) for b in self.cluster.description["brokers"] if b["id"] == broker)


@contextmanager
def running_yard(
    directory: Path,
    config: Mapping[str, str],
    awaited: Sequence[str],
    own_dags: str = "",
    *,
    secure: bool = False,
    extra: Mapping[str, str] | None = None,
    again: str = "",
    settings: Mapping[str, str] | None = None,
    packaged: bool = True,
) -> Iterator[Yard]:
    """Brokers with those settings, and Airflow over the DAGs that `install-dags` writes.

    `secure`: a cluster as of `logyard cluster start --secure`.
    `extra`: of the connection logyard_default, beside what leads to the cluster.
    `again`: one more connection to the same cluster, between which and logyard_default the DAGs' forms choose.
    `settings`: more of Airflow's, as environment variables.
    `packaged`: False leaves those DAGs away. Airflow reads each file at the start: 12 s of CPU at least.
    `own_dags` is the text of one more DAG file, `own.py`; `awaited` names DAGs that are known and on at the beginning.
    """
    dags = directory / "dags"
    dags.mkdir()
    (dags / "operators").mkdir()  # what many deployments have, and what must not get in our way
    (dags / "operators" / "__init__.py").write_text("")
    if packaged:
        install(dags, DagFile("logyard_", "logyard_default", "spark_default"), list(DAGS))
    if own_dags:
        (dags / "own.py").write_text(own_dags)
    cluster, airflow = LocalCluster(directory / "cluster"), Airflow(directory / "airflow")
    java = find_java(directory)
    bundle = {"name": "dags-folder", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle"}
    try:
        with ThreadPoolExecutor(max_workers=1) as beside:
            prepared = beside.submit(airflow.prepare, java)
            cluster.start(Settings(3, None, None, dict(config), secure))
            prepared.result()
        described = cluster.layout.read_description()
        reach = connections(described, cluster.layout.description, login=cluster.login())
        reach["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"] = json.dumps(
            [{**bundle, "kwargs": {"path": str(dags), "refresh_interval": 5}}]
        )
        if extra:
            leads = json.loads(reach["AIRFLOW_CONN_LOGYARD_DEFAULT"])
            leads["extra"] = {**leads["extra"], **extra}
            reach["AIRFLOW_CONN_LOGYARD_DEFAULT"] = json.dumps(leads)
        if again:
            reach[f"AIRFLOW_CONN_{again.upper()}"] = reach["AIRFLOW_CONN_LOGYARD_DEFAULT"]
            reach["AIRFLOW__LOGYARD__DAG_CONNECTIONS"] = f"logyard_default,{again}"
        reach.update(settings or {})
        airflow.start(reach, java)
        with AirflowApi(airflow.url, "admin", airflow.home.password(), timeout_s=90) as api:
            for dag_id in awaited:
                api.wait_dag(dag_id, 120)
            yield Yard(RealCluster(cluster), airflow, api, dags, cluster.login(), lambda: airflow.start(reach, java))
    finally:
        airflow.stop()
        cluster.stop(grace_s=0)  # nobody looks at what a clean stop leaves
