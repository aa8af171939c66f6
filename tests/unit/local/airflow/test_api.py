"""The REST client against a scripted server: log-in, runs, failures with their logs, what it does not wait for."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from logyard.local.airflow.api import AirflowApi, AirflowError, Run

RUNS = "/api/v2/dags/d/dagRuns"


class Server:
    """Answers by method and path; what it was asked is kept. Tokens run out when `tokens` says so."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[httpx.Request] = []
        self.token = "first"

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if request.url.path == "/auth/token":
            return httpx.Response(201, json={"access_token": self.token})
        if "auth" not in self.answers and request.headers.get("Authorization") != f"Bearer {self.token}":
            return httpx.Response(401, json={"detail": "Not authenticated"})
        answer = self.answers.get(f"{request.method} {request.url.path}", httpx.Response(404, text="nothing here"))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


def api(server: Server) -> AirflowApi:
    return AirflowApi("http://airflow", "admin", "secret", transport=httpx.MockTransport(server))


def task(name: str, state: str, try_number: int = 1) -> dict[str, Any]:
    return {"task_id": name, "state": state, "try_number": try_number, "map_index": -1, "start_date": "2026"}


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would get the password."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"scheduler": {"status": "healthy"}}).encode())

        def log_message(self, *_: object) -> None:
            pass

    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with AirflowApi(f"http://127.0.0.1:{server.server_port}", "admin", "secret") as client:
            assert client.health()["scheduler"] == "healthy"
        server.shutdown()


def test_a_run_is_triggered_waited_for_and_read() -> None:
    server = Server(
        {
            f"POST {RUNS}": {"dag_run_id": "r1", "state": "queued"},
            f"GET {RUNS}/r1": [{"state": "success"}],
            f"GET {RUNS}/r1/taskInstances": {"task_instances": [task("b", "success"), task("a", "success")]},
            f"GET {RUNS}/r1/taskInstances/a/xcomEntries/return_value": {"value": {"n": 1}},
        }
    )
    client = api(server)
    seen: list[list[str]] = []
    run = client.run_dag("d", {"topic": "t"}, progress=lambda tasks: seen.append([t.task_id for t in tasks]))
    assert (run.run_id, run.state) == ("r1", "success")
    assert seen == [["a", "b"]]
    assert client.xcom(run, "a") == {"n": 1}
    body = json.loads(next(r for r in server.asked if r.url.path == RUNS).content)
    assert body.pop("dag_run_id").startswith("manual__")
    assert body == {"logical_date": None, "conf": {"topic": "t"}}


def test_a_database_that_is_locked_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.local.airflow.api.PAUSE_S", 0.0)
    locked = httpx.Response(500, json={"detail": {"reason": "Database error"}})
    # The first was carried out though its answer was an error.
    server = Server({f"POST {RUNS}": [locked, httpx.Response(409, text="it is there")]})
    run = api(server).trigger("d")
    sent = [json.loads(r.content)["dag_run_id"] for r in server.asked if r.url.path == RUNS]
    assert (run.run_id, run.state, len(set(sent))) == (sent[0], "queued", 1)
    with pytest.raises(AirflowError, match="500"):
        api(Server({f"POST {RUNS}": locked})).trigger("d")


def test_a_token_that_ran_out_is_renewed_once() -> None:
    server = Server({"GET /x": {"ok": True}})
    client = api(server)
    assert client.get("/x") == {"ok": True}
    server.token = "second"
    assert client.get("/x") == {"ok": True}
    assert sum(r.url.path == "/auth/token" for r in server.asked) == 2


def test_a_failed_run_tells_the_task_and_the_end_of_its_log() -> None:
    lines: list[dict[str, Any]] = [{"event": "::group::noise"}, {"event": "began"}]
    lines.append({"event": "Task failed", "error_detail": [{"exc_type": "TopicConflict", "exc_value": "6 to 2"}]})
    server = Server(
        {
            f"GET {RUNS}/r1": {"state": "failed"},
            f"GET {RUNS}/r1/taskInstances": {"task_instances": [task("a", "success"), task("b", "failed", 2)]},
            f"GET {RUNS}/r1/taskInstances/b/logs/2": httpx.Response(200, text="\n".join(map(json.dumps, lines))),
        }
    )
    with pytest.raises(AirflowError) as failure:
        api(server).wait_run(Run("d", "r1", "queued"), 5)
    text = str(failure.value)
    assert "task b, try 2" in text
    assert "TopicConflict: 6 to 2" in text
    assert "noise" not in text


def test_a_refusal_is_quoted() -> None:
    server = Server({f"POST {RUNS}": httpx.Response(400, json={"detail": "bad topic"})})
    with pytest.raises(AirflowError, match=r"400.*bad topic"):
        api(server).trigger("d", {})


def test_a_dag_that_cannot_be_imported_is_not_waited_for() -> None:
    errors = {"import_errors": [{"filename": "/dags/d.py", "stack_trace": "ImportError: no module x"}]}
    with pytest.raises(AirflowError, match="no module x"):
        api(Server({"GET /api/v2/importErrors": errors})).wait_dag("d", 5)


def test_a_paused_dag_is_switched_on() -> None:
    server = Server({"GET /api/v2/dags/d": {"is_paused": True}, "PATCH /api/v2/dags/d": {"is_paused": False}})
    api(server).wait_dag("d", 5)
    assert any(r.method == "PATCH" for r in server.asked)


def test_health_is_waited_for_while_the_processes_live() -> None:
    good = {name: {"status": "healthy"} for name in ("metadatabase", "scheduler", "dag_processor", "triggerer")}
    server = Server({"auth": None, "GET /api/v2/monitor/health": [{"scheduler": {"status": None}}, good]})
    api(server).wait_healthy(5)

    def gone() -> None:
        raise AirflowError("the scheduler ended")

    with pytest.raises(AirflowError, match="scheduler ended"):
        api(Server({})).wait_healthy(5, gone)
    with pytest.raises(AirflowError, match="not healthy"):
        api(Server({})).wait_healthy(0)
