"""What the REST side of a standalone Spark's master says of a driver in the cluster.

Airflow's provider asks it too, by curl, but only after the driver is submitted: where it does not answer, the task
would fail while the driver goes on, and where something else answers, the task would never end.

Neither asks a proxy of the environment, as spark-submit does not, which talks to the same master: a proxy outside does
not reach it.
"""

import http.client
import json
import os
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from logyard.admin.settings import BadSettings
from logyard.operators.job_summary import JobFailed

CURL = Path("/usr/bin/curl")
NOT_ALIVE = "state is not alive"  # what a master says that is on standby, or reads its drivers back
_NOBODY = "driver-none"
_PATIENCE_S = 30
_ANSWER_MAX = 65_536
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def need(endpoint: str) -> None:
    """Return if the master's REST side answers at `http://host:port`.

    Raises JobFailed if it does not, and BadSettings if the provider could not ask there.
    """
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise BadSettings(f"the Spark connection's rest-scheme leads to {endpoint}: http or https is expected")
    if not CURL.exists():
        raise BadSettings(
            f"{CURL} is missing, by which Airflow's Spark provider asks how a driver in the cluster is: install curl, "
            "or run the driver here (deploy-mode client)"
        )
    _asked(endpoint, _NOBODY)


def direct(command: Sequence[str]) -> list[str]:
    """Return a command of the provider's so that its curl asks no proxy; other programs' as they are."""
    program, *arguments = command
    return [program, "--noproxy", "*", *arguments] if Path(program).name == CURL.name else [program, *arguments]


@contextmanager
def without_proxy() -> Iterator[None]:
    """Have the libraries of this process ask no proxy, as the provider's does that asks for an earlier try's driver."""
    before = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    os.environ.update(dict.fromkeys(before, "*"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def ending(endpoint: str, driver: str) -> str:
    """Return where a driver ran, and why Spark ended it, as far as the master says it; `driver` is Spark's id."""
    try:
        found = _asked(endpoint, driver)
    except JobFailed:
        return ""
    parts = []
    said = [line.strip() for line in str(found.get("message") or "").splitlines() if line.strip()]
    if said:  # the first line only says that it is an exception
        parts.append(said[min(1, len(said) - 1)])
    if worker := found.get("workerHostPort"):
        parts.append(f"it ran on {worker}; what it said is there, in the worker's folder {driver}")
    return "; ".join(parts)


def _asked(endpoint: str, driver: str) -> dict[str, Any]:
    try:
        with _DIRECT.open(f"{endpoint}/v1/submissions/status/{driver}", timeout=_PATIENCE_S) as response:
            answer: Any = json.loads(response.read(_ANSWER_MAX))
    except (OSError, ValueError, http.client.HTTPException, RecursionError) as problem:
        raise _silent(endpoint, str(getattr(problem, "reason", None) or problem)) from None
    if not isinstance(answer, dict) or "submissionId" not in answer:
        raise _silent(endpoint, "what answers is not Spark's master")
    return answer


def _silent(endpoint: str, reason: str) -> JobFailed:
    return JobFailed(
        f"{endpoint} does not tell how a driver in the cluster is ({reason}): start Spark's master with "
        "spark.master.rest.enabled=true and spark.master.rest.host=0.0.0.0, or run the driver here (deploy-mode client)"
    )
