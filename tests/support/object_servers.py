"""Servers that speak the protocols of object stores, fetched once into .logyard/stores. They listen on loopback alone.

with running_s3(tmp_path) as server:
    server.settings                # for --store
    server.url("exports/flights")  # a folder of its bucket

MiniStack keeps its word when 16 threads create one key (facts §61), and so does azurite.
"""

import base64
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from logyard.local.ports import free_port
from tests.support.needed import fetched, lacks, python_with, run

CACHE = Path(__file__).resolve().parents[2] / ".logyard" / "stores"
START_S = 60
MINISTACK, AZURITE = "ministack==1.5.33", "azurite@3"
BUCKET = "yard"
# azurite's published account.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECRET = "s3cr3t-of-the-test"


@dataclass(frozen=True)
class ObjectServer:
    """A running server with one bucket."""

    scheme: str
    endpoint: str
    credentials: Mapping[str, str]

    @property
    def settings(self) -> dict[str, str]:
        return self.through(self.endpoint)

    def through(self, endpoint: str) -> dict[str, str]:
        """The settings of a client that speaks to it through another address."""
        return {"endpoint": endpoint, **self.credentials}

    def url(self, folder: str) -> str:
        return f"{self.scheme}://{BUCKET}/{folder}"


@contextmanager
def running_s3(directory: Path) -> Iterator[ObjectServer]:
    """S3 by MiniStack; the test lacks it where it cannot be had."""
    port = free_port()
    environment = {
        "SERVICES": "s3",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "TMPDIR": str(directory),
    }
    with _running([str(_ministack())], environment, directory / "ministack.log", port):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=START_S).close()
        keys = {"access_key_id": "AKIATEST", "secret_access_key": SECRET, "region": "us-east-1"}
        yield ObjectServer("s3", f"http://127.0.0.1:{port}", keys)


@contextmanager
def running_azure(directory: Path) -> Iterator[ObjectServer]:
    """Azure Blob Storage by azurite; the test lacks it where it cannot be had."""
    port = free_port()
    command = [str(_azurite()), "--silent", "--inMemoryPersistence", "--skipApiVersionCheck"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with _running(command, {}, directory / "azurite.log", port):
        _make_container(port)
        account = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
        yield ObjectServer("az", f"http://127.0.0.1:{port}/{ACCOUNT}", account)


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], log: Path, port: int) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=out, stderr=out, start_new_session=True
        )
        try:
            deadline = time.monotonic() + START_S
            while not _listens(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, f"{command[0]} does not listen after {START_S} s"
                time.sleep(0.05)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _make_container(port: int) -> None:
    date = datetime.now(timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    words = "PUT" + "\n" * 12 + f"{headers}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), words.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{ACCOUNT}/{BUCKET}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    urllib.request.urlopen(request, timeout=START_S).close()


def _ministack() -> Path:
    return fetched(CACHE / MINISTACK.replace("==", "-"), _install_ministack) / "run"


def _install_ministack(home: Path) -> None:
    python_with(home, [MINISTACK], "site")
    # Scripts of an environment name its path: this one starts the module from wherever it is moved to.
    script = home / "run"
    script.write_text('#!/bin/sh\nhome=$(dirname "$0")\nPYTHONPATH="$home/site" exec "$home/bin/python" -m ministack\n')
    script.chmod(0o755)


def _azurite() -> Path:
    if shutil.which("npm") is None:
        lacks("npm is missing: it fetches azurite")
    return fetched(CACHE / AZURITE.replace("@", "-"), _install_azurite) / "node_modules" / ".bin" / "azurite-blob"


def _install_azurite(home: Path) -> None:
    run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home), AZURITE], AZURITE)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
