"""A PostgreSQL server of one test's own: Debian's, on loopback, in a folder that is removed.

with running_postgres() as address:        # "postgresql+psycopg2://…", None where PostgreSQL is not installed
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logyard.local.ports import HOST, free_port

_USER = "postgres"
_START_S = 60.0
_NEEDED = ("initdb", "postgres", "pg_isready")


def _programs() -> Path | None:
    """Where its programs are; Debian keeps them out of the path."""
    found = shutil.which("pg_isready")
    places = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *([Path(found).parent] if found else ()),
    ]
    return next((place for place in places if all((place / name).exists() for name in _NEEDED)), None)


@contextmanager
def running_postgres() -> Iterator[str | None]:
    programs = _programs()
    if programs is None:
        yield None
        return
    # It refuses to run as root.
    who: dict[str, Any] = {"user": _USER, "group": _USER, "extra_groups": []} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="postgres"))
    port = free_port()
    try:
        if who:
            shutil.chown(folder, _USER, _USER)
        data = str(folder / "data")
        made = ["initdb", "-D", data, "-U", _USER, "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8"]
        subprocess.run([programs / made[0], *made[1:]], check=True, capture_output=True, cwd=folder, **who)
        options = ["-D", data, "-p", str(port), "-h", HOST, "-k", str(folder), "-F"]
        server = subprocess.Popen(
            [programs / "postgres", *options], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who
        )
        try:
            _await(programs, port, server)
            yield f"postgresql+psycopg2://{_USER}@{HOST}:{port}/postgres"
        finally:
            server.terminate()
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await(programs: Path, port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while subprocess.run([programs / "pg_isready", "-q", "-h", HOST, "-p", str(port)], check=False).returncode:
        if server.poll() is not None or time.monotonic() >= deadline:
            raise RuntimeError("PostgreSQL does not start")
        time.sleep(0.05)
