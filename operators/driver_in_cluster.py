"""Airflow's Spark operator, with what it lacks for a driver that runs inside a cluster.

Rule 1: nothing is submitted to a standalone cluster whose master does not tell how a driver is (standalone_status.py).
Rule 2: a driver that the master does not know any more, because it was started again, did not end well: the next try
        submits the job again. The provider would fail each try.
Rule 3: the driver's id is forgotten when the task has ended well. Else a task that somebody clears to run it again
        would end well at once, and do nothing.
Rule 4: if a driver failed, the task's reason says where it ran, and what Spark says of it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import Context

from logyard.operators import standalone_driver, standalone_status
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.job_summary import JobFailed
from logyard.operators.spark_provider import SparkSubmitHook, SparkSubmitOperator

# The provider's, which ask a master how a driver is, and to end it.
_COMMANDS = ("_build_track_driver_status_command", "_build_spark_driver_kill_command")

LOST = "LOST"  # no state of Spark's: neither active nor a success


class DriverInCluster(SparkSubmitOperator):
    """A SparkSubmitOperator whose driver may run inside a standalone cluster of Spark."""

    _submit_environment: Mapping[str, str] | None = None  # of spark-submit, for a standalone cluster only
    _refusals: list[str]  # of masters that were asked for a driver

    def _submit_driver(self, master: str, arguments: Sequence[str], files: Mapping[str, Path]) -> None:
        """Have Spark start the job's driver on a worker of a standalone cluster. Raises BadSettings."""
        driver = standalone_driver.submission(master, Path(self.application), arguments, files)
        self.application, self.application_args = driver.application, list(driver.arguments)
        self._java_class = standalone_driver.PROGRAM
        self._submit_environment = driver.environment

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        if self._submit_environment is not None:
            vars(hook)["submit"] = partial(_submit, hook, hook.submit, self._submit_environment)
        for name in _COMMANDS:
            made: Any = getattr(hook, name, None)
            if made is not None:
                vars(hook)[name] = partial(_direct, made)
        return hook

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Return the state of an earlier try's driver; LOST if the master does not know it any more."""
        self._refusals = []
        try:
            with standalone_status.without_proxy():
                return super().get_job_status(external_id, context)
        except (RuntimeError, OSError) as problem:
            # Of several masters the last one's problem is raised: one on standby, or away, hides what another says.
            refusals = self._refusals or [str(problem)] * isinstance(problem, RuntimeError)
            is_lost = any(standalone_status.NOT_ALIVE not in refusal for refusal in refusals)
            if self._submit_environment is None or not is_lost:
                raise
            self.log.warning("%s is not known any more, so the job is submitted again: %s", external_id, problem)
            return LOST

    def _fetch_driver_status(self, url: str, external_id: str) -> str:  # type: ignore[override]  # it has a retry's type
        """What one master tells; of the provider, which asks each."""
        try:
            found: str = super()._fetch_driver_status(url, external_id)
            return found
        except RuntimeError as refusal:
            self._refusals.append(str(refusal))
            raise

    def _forget_driver(self, context: Context) -> None:
        store: Any = context.get("task_state_store")
        for name in ("external_id_key", "_K8S_DRIVER_STATUS_KEY"):  # of the provider since Airflow 3.3
            key = getattr(self, name, None)
            if store is not None and key is not None and store.get(key) is not None:
                store.delete(key)

    def _ended_badly(self, job: str, problem: Exception) -> Exception:
        """Return the problem, with what the master says of the driver, if there was one in a standalone cluster."""
        driver: Any = getattr(self._hook, "_driver_id", None)
        if self._submit_environment is None or driver is None or isinstance(problem, AirflowFailException):
            return problem
        endpoint = _rest_endpoint(self._hook)
        told = standalone_status.ending(endpoint, driver) if endpoint else ""
        return JobFailed("; ".join(filter(None, [f"{job}: {problem}", told])))


def _submit(hook: SparkSubmitHook, submit: Any, environment: Mapping[str, str], application: str = "") -> str | None:
    """Submit with an environment of its own: the provider's `env_vars` add to this process's, and are refused here."""
    if endpoint := _rest_endpoint(hook):
        standalone_status.need(endpoint)
    found: str | None = submit(application, env=environment)
    return found


def _direct(made: Callable[[], Sequence[str]]) -> list[str]:
    return standalone_status.direct(made())


def _rest_endpoint(hook: Any) -> str | None:
    """Return where the provider asks for drivers; None where it asks by spark-submit (several masters)."""
    found: str | None = hook._connection.get("rest_endpoint")
    return found
