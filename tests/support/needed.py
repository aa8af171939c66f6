"""What a test needs and may not find: one rule for all of them.

`lacks("npm is missing")` skips the test, and fails it under LOGYARD_REQUIRE, where nothing may lack.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from logyard.local import files

FETCH_S = 300
OWN_UV = Path(__file__).resolve().parents[2] / ".logyard" / "uv" / "bin" / "uv"


def lacks(what: str) -> NoReturn:
    """End this test: it cannot run here, for this reason."""
    if os.environ.get("LOGYARD_REQUIRE"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def fetched(place: Path, fetch: Callable[[Path], object]) -> Path:
    """What `fetch` puts into a folder, kept at `place`; two workers of a clean checkout fetch it once.

    It gets an empty folder beside the place and appears there whole or not at all.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(place.parent / "lock"):
        if not place.exists():
            aside = Path(tempfile.mkdtemp(dir=place.parent, prefix=".fetching-"))
            try:
                fetch(aside)
            except BaseException:
                shutil.rmtree(aside)
                raise
            aside.rename(place)
    return place


def python_with(home: Path, packages: Sequence[str], site: str | None = None) -> None:
    """Make a Python in `home` that has these packages, or whose folder `site` has them, for who puts it on a path.

    By uv, which `make setup` has used: it keeps what it has fetched for the next checkout.
    """
    venv.create(home)
    uv = shutil.which("uv") or str(OWN_UV)
    where = ["--target", str(home / site)] if site else []
    run([uv, "pip", "install", "-q", "--python", f"{home}/bin/python", *where, *packages], packages[0], as_pip())


@cache
def as_pip() -> dict[str, str]:
    """How uv reaches packages: as pip has been told, of which uv reads nothing (scripts/setup does the same)."""
    command = [f"{sys.base_prefix}/bin/python3", "-m", "pip", "config", "list"]
    with suppress(OSError):
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        told = dict(re.findall(r"^(?:global|:env:)\.(index-url|cert)='(.*)'$", said, re.MULTILINE))
        names = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
        return {names[name]: value for name, value in told.items()}
    return {}


def run(command: Sequence[str], wanted: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a package manager that fetches what is wanted; the test lacks it where that fails."""
    own = {**(environment or {}), **os.environ}
    try:
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        lacks(f"{wanted} cannot be had: {error}")
    if done.returncode:
        lacks(f"{wanted} cannot be had: {(done.stderr + done.stdout).strip()[-300:]}")
