"""What a test needs and may not find: one rule for all of them.

`lacks("npm is missing")` skips the test, and fails it under LOGYARD_REQUIRE, where nothing may lack.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from logyard.local import files

FETCH_S = 300


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


def run(command: Sequence[str], wanted: str) -> None:
    """Run a package manager that fetches what is wanted; the test lacks it where that fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        lacks(f"{wanted} cannot be had: {error}")
    if done.returncode:
        lacks(f"{wanted} cannot be had: {(done.stderr + done.stdout).strip()[-300:]}")
