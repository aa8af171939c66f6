"""The health check asks real servers: one that is well, one that is not, none at all."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from logyard.local.authority import Authority
from logyard.local.health_check import main, problem_of

COMPONENTS = {"scheduler": {"status": "healthy"}, "triggerer": {"status": None}, "dag_processor": {}}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()
        self.wfile.write(json.dumps(COMPONENTS).encode())

    def log_message(self, *_: object) -> None:
        pass


def served(server: ThreadingHTTPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def plain() -> Iterator[int]:
    yield from served(ThreadingHTTPServer(("127.0.0.1", 0), Answers))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def encrypted(authority: Authority) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker", ("127.0.0.1",)).pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    yield from served(server)


def test_what_is_no_http_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """As where a port with TLS is asked without."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            link, _ = server.accept()
            link.recv(4096)
            link.sendall(b"\x15\x03\x01\x00\x02\x02\x46\n")
            link.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert main([url := f"http://127.0.0.1:{server.getsockname()[1]}/health"]) == 1
        thread.join()
    said = capsys.readouterr().err
    assert said.startswith(f"{url}: ")
    assert said.count("\n") == 1


def test_a_service_that_is_well_and_one_that_is_not(plain: int) -> None:
    url = f"http://127.0.0.1:{plain}"
    assert problem_of(f"{url}/health") == ""
    assert "503" in problem_of(f"{url}/other")


def test_a_component_has_to_be_healthy(plain: int, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{plain}/health"
    assert main([url, "--component", "scheduler"]) == 0
    for component, reason in (
        ("triggerer", "triggerer is None"),
        ("dag_processor", "says nothing of"),
        ("no", "says nothing of"),
    ):
        assert main([url, "--component", component]) == 1
        assert reason in capsys.readouterr().err


def test_a_proxy_of_the_environment_is_not_asked(plain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert problem_of(f"http://127.0.0.1:{plain}/health") == ""


def test_a_certificate_is_checked(encrypted: int, authority: Authority, tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{encrypted}/health"
    assert problem_of(url, str(authority.certificate)) == ""
    assert "CERTIFICATE_VERIFY_FAILED" in problem_of(url)
    assert "CERTIFICATE_VERIFY_FAILED" in problem_of(url, str(Authority(tmp_path / "other").certificate))
    assert problem_of(url, str(tmp_path / "missing"))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "no url", "http://"])
def test_nobody_answers(url: str) -> None:
    assert problem_of(url)
