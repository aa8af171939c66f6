"""Files whose bytes the system has dropped from memory."""

import os
import time
from pathlib import Path

import pytest

from logyard.broker.log.disk import page_cache


def drop(path: Path) -> None:
    """Have the system forget what it has of a file in memory; its last pages may take it a moment."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        calls = page_cache.calls()
        assert calls is not None, "this system does not tell what is in memory"
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not calls.are_in_memory(file.fileno(), 1, 0):
                return
            time.sleep(0.01)
    raise AssertionError(f"{path} stays in memory")


def skip_unless_told(directory: Path) -> None:
    """Skip the test where the file system does not tell what is in memory: brokers read there, and send no files."""
    path = directory / "asked"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        pages = page_cache.pages_of(file.fileno())
    path.unlink()
    if pages is None:
        pytest.skip("this file system does not tell what is in memory")
