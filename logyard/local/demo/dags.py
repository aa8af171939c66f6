"""Runs DAGs through Airflow's REST API for the demo's steps: several at a time, with results by task."""

from collections.abc import Mapping, Sequence
from typing import Any

from logyard.local.airflow.api import AirflowApi, AirflowError, Run
from logyard.local.errors import LocalError
from logyard.local.processes import Say

KNOWN_S = 90.0
# A run takes half a minute on an idle machine, and ten times as long where others use the cores.
RUN_S = 600.0


class DagRuns:
    """Starts runs and waits for them; `note` gets the tasks that are running. Methods raise LocalError."""

    def __init__(
        self, url: str, user: str, password: str, note: Say = lambda text: None, *, timeout_s: float = 30.0
    ) -> None:
        self._api = AirflowApi(url, user, password, timeout_s=timeout_s)
        self._note = note

    def __enter__(self) -> "DagRuns":
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()

    def await_known(self, dag_ids: Sequence[str]) -> None:
        """Wait until Airflow has parsed these DAGs, and check that all files and plugins were imported."""
        try:
            for dag_id in dag_ids:
                self._api.wait_dag(dag_id, KNOWN_S)
            errors = [*self._api.import_errors(), *self._api.plugin_import_errors()]
        except AirflowError as error:
            raise LocalError(one_line(str(error))) from error
        if errors:
            raise LocalError(f"Airflow could not import everything: {one_line(str(errors[0]))}")

    def run_all(self, runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Start these (DAG id, conf) together, and wait for all. Returns their tasks' results by task id."""
        try:
            started = [self._api.trigger(dag_id, conf) for dag_id, conf in runs]
            return [self._results(self._wait(run)) for run in started]
        except AirflowError as error:
            raise LocalError(one_line(str(error))) from error

    def _wait(self, run: Run) -> Run:
        def progress(tasks: Sequence[Any]) -> None:
            at_work = [f"{task.task_id} {task.state}" for task in tasks if task.state not in ("none", "success")]
            if at_work:
                self._note(f"DAG {run.dag_id}: {', '.join(at_work)}")

        return self._api.wait_run(run, RUN_S, progress)

    def _results(self, run: Run) -> dict[str, Any]:
        results = {}
        for task in self._api.tasks(run):
            try:
                results[task.task_id] = self._api.xcom(run, task.task_id, map_index=task.map_index)
            except AirflowError:  # sensors and skipped tasks return nothing
                results[task.task_id] = None
        return results


def one_line(text: str) -> str:
    """Return the first and the last line of a long text, without blank lines and Spark's INFO lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and " INFO " not in line]
    if len(lines) <= 1:
        return text.strip().splitlines()[0] if text.strip() else text
    return f"{lines[0][:200]}: {lines[-1][:400]}"
