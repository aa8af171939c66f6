"""The files in which `logyard reassign execute` records a throttle until its moves have started.

Each run writes one file to $XDG_STATE_HOME/logyard/throttles (default ~/.local/state/…), in one folder per cluster. If
a run is killed, its file stays; the next `execute`, `verify` or `cancel` of the same user reads it and restores the
earlier settings. docs/decisions/0020-throttles.md says why this is a file and not in the cluster.
"""

import hashlib
import json
import os
import secrets
import socket
from pathlib import Path

import typer

from logyard.admin.reassignment.ending import ThrottleOwner
from logyard.admin.reassignment.throttles.records import Record, Records
from logyard.broker.errors import CorruptData
from logyard.local import files, identity


class FileRecords:
    """The records of throttles in one cluster whose moves have not started yet.

    If a record cannot be written, that is reported, and only this process remembers it: a throttle is then left behind
    if the process is killed.

    :param folder: holds one file for each; created when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unwritten: dict[str, Record] = {}

    def load(self) -> list[Record]:
        found = list(self._unwritten.values())
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(Record.from_json(path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue  # another run has ended meanwhile
            except (CorruptData, OSError, UnicodeDecodeError) as problem:
                typer.echo(f"{path} is ignored: {problem}", err=True)
        return found

    def put(self, record: Record) -> None:
        if record.owner not in self._unwritten:
            try:
                files.write_json(self._path(record.owner), record.as_json(), files.PRIVATE)
                return
            except OSError as problem:
                typer.echo(f"cannot record the throttle in {self._folder}: {problem.strerror}", err=True)
        self._unwritten[record.owner] = record

    def drop(self, owner: str) -> None:
        if self._unwritten.pop(owner, None) is not None:
            return
        try:
            self._path(owner).unlink(missing_ok=True)
        except OSError as problem:
            typer.echo(f"{self._path(owner)} cannot be removed: {problem.strerror}", err=True)

    def _path(self, owner: str) -> Path:
        return self._folder / f"{hashlib.sha256(owner.encode()).hexdigest()[:24]}.json"


def this_run() -> ThrottleOwner:
    """The owner of what this process throttles: host, process and a token of its own."""
    me = identity.identify(os.getpid())
    started, boot = (me.started, me.boot) if me is not None else (0, "")
    name = json.dumps([socket.gethostname(), os.getpid(), started, boot, secrets.token_hex(4)])
    return ThrottleOwner(name, records_of, lives)


def records_of(cluster_id: str) -> Records:
    """The records of that cluster."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return FileRecords(base / "logyard" / "throttles" / hashlib.sha256(cluster_id.encode()).hexdigest()[:24])


def lives(owner: str) -> bool:
    """Whether that run is still working; one on another host, or of a version that names itself otherwise, may be."""
    try:
        host, pid, started, boot, _ = json.loads(owner)
        me = identity.Identity(int(pid), int(started), str(boot))
    except (TypeError, ValueError, OverflowError):
        return True
    return bool(host != socket.gethostname() or identity.is_alive(me))
