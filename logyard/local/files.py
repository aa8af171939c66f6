"""Small files that are written atomically, and locks for their writers."""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logyard.local.errors import LocalError

PRIVATE, PUBLIC = 0o600, 0o644


def write_text(path: Path, text: str, mode: int = 0o644, *, is_durable: bool = False) -> None:
    """Replace `path` atomically (write another file, then rename it); its mode is never wider than `mode`.

    `is_durable`: the text survives a power loss once the new name does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: object, mode: int = 0o644) -> None:
    """Replace `path` atomically by `value` as indented JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n", mode)


def read_json(path: Path, default: Any = None) -> Any:
    """Read a JSON file; `default` if there is none. Raises LocalError if it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except (OSError, ValueError) as error:
        raise LocalError(f"{path} cannot be read ({error}): move it away and start again") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on `path` (created if missing); waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def lock_or_refuse(path: Path) -> Iterator[bool]:
    """Hold the lock on `path` without waiting; yields False if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
