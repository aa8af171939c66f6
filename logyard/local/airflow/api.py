"""A small client of Airflow's REST API, for what a user does in the UI; the demo and the tests use it.

    with AirflowApi("http://127.0.0.1:8080", "admin", password) as api:
        api.wait_healthy(60)
        run = api.run_dag("logyard_create_topic", {"topic": "flights", "partitions": 6})
        print(api.xcom(run, "create"))

Times are seconds. Everything raises AirflowError, whose text names the DAG, the task and the last lines of its log.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from logyard.local.errors import LocalError

COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
END_STATES = ("success", "failed")
PAUSE_S = 0.5
_LOG_LINES = 40
_TRIES = 4


class AirflowError(LocalError):
    """Airflow refused something, did not answer in time, or a run failed."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one DAG. `state` is Airflow's: queued, running, success, failed."""

    dag_id: str
    run_id: str
    state: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task of a run in its present state."""

    task_id: str
    state: str
    try_number: int
    map_index: int = -1
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)


class AirflowApi:
    """A client of one API server as one user; not thread-safe."""

    def __init__(
        self,
        base_url: str,
        username: str,
        password: str,
        *,
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._username, self._password = username, password
        # No proxy of the environment: it cannot reach an Airflow on loopback, and must not see the password.
        where = base_url.rstrip("/")
        self._http = httpx.Client(base_url=where, timeout=timeout_s, transport=transport, trust_env=False)
        self._token = ""

    def __enter__(self) -> "AirflowApi":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- waiting for the platform ---------------------------------------------------------------

    def health(self) -> dict[str, str]:
        """Return the status of each component, "" if it has none. It needs no login."""
        try:
            answer = self._http.get("/api/v2/monitor/health")
            content = answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            content = {}
        return {name: str((content.get(name) or {}).get("status") or "") for name in COMPONENTS}

    def wait_healthy(self, timeout_s: float, alive: Callable[[], None] | None = None) -> None:
        """Wait until every component is healthy; `alive` may raise if a process is gone."""
        for _ in self._until(timeout_s, lambda: f"Airflow is not healthy: {self.health()}"):
            if alive is not None:
                alive()
            if all(status == "healthy" for status in self.health().values()):
                return

    def wait_dag(self, dag_id: str, timeout_s: float) -> None:
        """Wait until Airflow knows a DAG, and make it active. Raises AirflowError at once for an import error."""
        for _ in self._until(timeout_s, lambda: f"DAG {dag_id} did not appear"):
            answer = self._send_again("GET", f"/api/v2/dags/{dag_id}", allow=(404,))
            if answer.status_code == 200 and not answer.json().get("is_paused"):
                return
            if answer.status_code == 200:
                self._send_again("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})
                return
            errors = [e for e in self.import_errors() if dag_id in str(e.get("filename", ""))]
            if errors:
                raise AirflowError(f"DAG {dag_id}: {str(errors[0].get('stack_trace', ''))[-2000:]}")

    def import_errors(self) -> list[dict[str, Any]]:
        """Return the import errors of DAG files."""
        return list(self._send_again("GET", "/api/v2/importErrors").json()["import_errors"])

    def plugin_import_errors(self) -> list[dict[str, Any]]:
        """Return the import errors of plugins."""
        return list(self._send_again("GET", "/api/v2/plugins/importErrors").json()["import_errors"])

    # -- runs -------------------------------------------------------------------------------------

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> Run:
        """Start a run with that configuration (the DAG's params)."""
        # With our own run id, a request that got an error can be sent again: 409 means that the run exists.
        run_id = f"manual__{uuid.uuid4()}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        answer = self._send_again("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body, allow=(409,))
        if answer.status_code == 409:
            return Run(dag_id, run_id, "queued")
        made = answer.json()
        return Run(dag_id, made["dag_run_id"], made["state"])

    def wait_run(self, run: Run, timeout_s: float, progress: Callable[[list[TaskView]], None] | None = None) -> Run:
        """Wait for the end of a run; `progress` gets its tasks at each poll. Raises AirflowError if it fails."""
        started = time.monotonic()
        where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}"
        for _ in self._until(timeout_s, lambda: f"DAG {run.dag_id} did not end: {self._where_it_is(run)}"):
            state = str(self._send_again("GET", where).json()["state"])
            if progress is not None:
                progress(self.tasks(run))
            if state in END_STATES:
                ended = Run(run.dag_id, run.run_id, state, time.monotonic() - started)
                if state != "success":
                    raise AirflowError(self.why_failed(ended))
                return ended
        raise AssertionError("the wait ends by returning or raising")

    def run_dag(
        self,
        dag_id: str,
        conf: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        progress: Callable[[list[TaskView]], None] | None = None,
    ) -> Run:
        """Trigger a DAG and wait for the end of the run."""
        return self.wait_run(self.trigger(dag_id, conf), timeout_s, progress)

    def tasks(self, run: Run) -> list[TaskView]:
        """Return the run's tasks in the order in which they started."""
        where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances"
        found = self._send_again("GET", where).json()["task_instances"]
        found.sort(key=lambda t: (t.get("start_date") or "9", t["task_id"], t["map_index"]))
        return [TaskView(t["task_id"], t.get("state") or "none", t["try_number"], t["map_index"], t) for t in found]

    def xcom(self, run: Run, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return the value that a task returned, or pushed under another key."""
        where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        answer = self._send_again("GET", where, params={"deserialize": "true", "map_index": map_index})
        return answer.json()["value"]

    def log(self, run: Run, task: TaskView) -> list[str]:
        """Return the log lines of a task's last try."""
        tasks = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances"
        where = f"{tasks}/{task.task_id}/logs/{max(task.try_number, 1)}"
        answer = self.send(
            "GET", where, params={"map_index": task.map_index}, headers={"Accept": "application/x-ndjson"}, allow=(404,)
        )
        if answer.status_code == 404:
            return []
        return [text for line in answer.text.splitlines() for text in _log_line(line)]

    def why_failed(self, run: Run) -> str:
        """Return a text with the failed tasks, and the last lines of their logs."""
        parts = [f"DAG {run.dag_id}, run {run.run_id}: {run.state}"]
        for task in self.tasks(run):
            if task.state == "failed":
                parts.append(f"--- task {task.task_id}, try {task.try_number} ---")
                parts += self.log(run, task)[-_LOG_LINES:]
        return "\n".join(parts)

    # -- plumbing -----------------------------------------------------------------------------------

    def get(self, path: str, **params: Any) -> Any:
        """Send any other GET, say to the plugin's routes. Returns the decoded JSON."""
        return self._send_again("GET", path, params=params).json()

    def _where_it_is(self, run: Run) -> str:
        return ", ".join(f"{task.task_id} {task.state}" for task in self.tasks(run))

    def _send_again(self, method: str, path: str, *, allow: tuple[int, ...] = (), **request: Any) -> httpx.Response:
        """Send a request, again if Airflow's SQLite is locked for a moment (500). Raises AirflowError."""
        for _ in range(_TRIES - 1):
            answer = self.send(method, path, allow=(*allow, 500), **request)
            if answer.status_code != 500:
                return answer
            time.sleep(PAUSE_S)
        return self.send(method, path, allow=allow, **request)

    def send(self, method: str, path: str, *, allow: tuple[int, ...] = (), **request: Any) -> httpx.Response:
        """Send with a token; log in again once if it has expired. Raises AirflowError."""
        headers = dict(request.pop("headers", {}))
        for again in (True, False):
            if not self._token:
                self._log_in()
            headers["Authorization"] = f"Bearer {self._token}"
            try:
                answer = self._http.request(method, path, headers=headers, **request)
            except httpx.HTTPError as problem:
                raise AirflowError(f"{method} {path}: {problem or type(problem).__name__}") from None
            if answer.status_code == 401 and again:
                self._token = ""
                continue
            break
        if answer.is_success or answer.status_code in allow:
            return answer
        raise AirflowError(f"{method} {path}: {answer.status_code} {answer.text[:2000]}")

    def _log_in(self) -> None:
        try:
            answer = self._http.post("/auth/token", json={"username": self._username, "password": self._password})
            self._token = str(answer.json()["access_token"])
        except (httpx.HTTPError, ValueError, KeyError) as problem:
            raise AirflowError(f"cannot log in to Airflow as {self._username}: {problem}") from None

    def _until(self, timeout_s: float, why: Callable[[], str]) -> Iterator[None]:
        deadline = time.monotonic() + timeout_s
        while True:
            yield
            if time.monotonic() >= deadline:
                raise AirflowError(f"{why()} (after {timeout_s:g} s)")
            time.sleep(PAUSE_S)


def _log_line(line: str) -> list[str]:
    """Return one NDJSON log line as lines of text, without group marks and empty lines."""
    try:
        content = json.loads(line)
    except ValueError:
        return [line] if line.strip() else []
    text = str(content.get("event", "")) if isinstance(content, dict) else str(content)
    details = content.get("error_detail") if isinstance(content, dict) else None
    lines = [] if text.startswith("::") else [text]
    lines += [f"{error.get('exc_type')}: {error.get('exc_value')}" for error in details or []]
    return [entry for entry in lines if entry.strip()]
