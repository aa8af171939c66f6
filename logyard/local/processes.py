"""The processes of one directory: started in their own sessions, found again later, and reliably stopped.

Rules:
1. An entry is on disk before its process is started, with a token that the process carries in its
   environment; so a process whose start was interrupted can still be found.
2. A signal goes only to a process with the recorded pid and start time (identity.py).
3. Stopping ends the whole family: the process, its descendants, its session, and what these start when they are told
   to end. TERM first, KILL after a grace.
"""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from logyard.local import files, identity
from logyard.local.errors import LocalError
from logyard.local.identity import Identity

TOKEN = "LOGYARD_PROCESS"
GRACE_S = 20.0
# How often it is looked for processes that others have started at their end.
LATER_ROUNDS = 5

Say = Callable[[str], None]
"""Shows a line of progress to the user."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One started process as processes.json holds it; `pid` is None while it is being started."""

    name: str
    token: str
    command: tuple[str, ...]
    log: str
    pid: int | None = None
    started: int | None = None
    boot: str | None = None

    @property
    def identity(self) -> Identity | None:
        if self.pid is None or self.started is None or self.boot is None:
            return None
        return Identity(self.pid, self.started, self.boot)

    @property
    def alive(self) -> bool:
        return self.identity is not None and identity.is_alive(self.identity)


class Processes:
    """The processes that were started under one directory; several of our processes may use the same directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = directory / "logs"
        self._path = directory / "processes.json"
        self._lock = directory / "processes.lock"
        self._closed = False
        self._children: list[subprocess.Popen[bytes]] = []  # kept to be reaped when they end

    def entries(self) -> dict[str, Entry]:
        """Return what was started and not stopped, dead or alive, in the order of starting."""
        recorded = files.read_json(self._path, {})
        return {name: Entry(**{**fields, "command": tuple(fields["command"])}) for name, fields in recorded.items()}

    def get(self, name: str) -> Entry | None:
        return self.entries().get(name)

    def alive(self, name: str) -> bool:
        self._reap()
        entry = self.get(name)
        return entry is not None and entry.alive

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Entry:
        """Start `command` under `name`, and append its output to logs/NAME.log. Returns its recorded entry.

        Raises LocalError if that name already runs, or the command cannot be started.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        entry = Entry(name, secrets.token_hex(16), tuple(command), str(self.logs / f"{name}.log"))
        variables = {**(os.environ if environment is None else environment), TOKEN: entry.token}
        with files.locked(self._lock):
            if self._closed:
                raise LocalError(f"{name} is not started: {self.directory} is being stopped")
            if self.alive(name):
                raise LocalError(f"{name} already runs in {self.directory}: stop it first")
            known = self.entries()
            if name in known:  # it died by itself: stop what it may have left behind
                self._end([known.pop(name)], signal.SIGTERM, GRACE_S)
            self._write({**known, name: entry})
            try:
                child = _spawn(entry, variables, cwd or self.directory)
            except OSError as error:
                self._write(known)
                raise LocalError(f"{name} cannot be started: {error}") from error
            self._children.append(child)
            found = identity.stat_of(child.pid)  # exists even if it ended at once: it has not been reaped yet
            if found is not None:
                entry = replace(entry, pid=child.pid, started=found.started, boot=identity.boot_id())
            self._write({**known, name: entry})
        return entry

    def stop(self, name: str, *, number: signal.Signals = signal.SIGTERM, grace_s: float = GRACE_S) -> bool:
        """Stop that process and its family, and forget it. Returns False if none of it ran."""
        return self.stop_together([name], number=number, grace_s=grace_s)

    def stop_together(
        self, names: Iterable[str], *, number: signal.Signals = signal.SIGTERM, grace_s: float = GRACE_S
    ) -> bool:
        """Stop these at the same time, which takes as long as the slowest. Returns False if none ran."""
        known = self.entries()
        ended = [known[name] for name in names if name in known]
        ran = self._end(ended, number, grace_s)
        for entry in ended:
            self._forget(entry)
        return ran

    def close(self) -> None:
        """Refuse later starts, also from other threads."""
        self._closed = True

    def status(self, name: str) -> int | None:
        """Return the exit status of a process; None while it runs, or if this object did not start it."""
        entry = self.get(name)
        return next((child.poll() for child in self._children if entry and child.pid == entry.pid), None)

    def failure(self, name: str) -> str:
        """Return in one line why that process ended: its exit status if known, and the last line of its log."""
        entry = self.get(name)
        if entry is None:
            return f"{name} was never started"
        status = self.status(name)
        ended = "ended" if status is None else f"ended with status {status}"
        return f"{name} {ended}: {last_line(Path(entry.log))} (see {entry.log})"

    def _end(self, entries: Sequence[Entry], number: signal.Signals, grace_s: float) -> bool:
        leaders = [found for entry in entries for found in _leaders(entry)]
        families = [member for leader in leaders for member in identity.family(leader)]
        signalled = [identity.send(leader, number) for leader in leaders]
        left = self._wait(leaders, grace_s)
        # Leaders that did not react, and processes that they left behind in any session.
        families += [member for leader in leaders for member in identity.family(leader)]
        families += _carriers(entries)
        self._end_each(families, left, min(grace_s, 5.0))
        # What those have started at their end: a task that is told to end may run a command.
        for _ in range(LATER_ROUNDS):
            later = _carriers(entries)
            if not later:
                return any(signalled) or bool(families)
            families += later
            self._end_each(later, [], min(grace_s, 5.0))
        names = ", ".join(entry.name for entry in entries)
        raise LocalError(f"{names}: what it had started starts others whenever it is ended: stop that by hand")

    def _end_each(self, members: Sequence[Identity], deaf: Sequence[Identity], grace_s: float) -> None:
        """End these processes, those that are deaf to TERM by KILL at once. Raises LocalError."""
        for member in dict.fromkeys(members):
            identity.send(member, signal.SIGKILL if member in deaf else signal.SIGTERM)
        for member in self._wait(members, grace_s):
            identity.send(member, signal.SIGKILL)
        stubborn = dict.fromkeys(self._wait(members, 10.0))
        if stubborn:
            pids = ", ".join(str(member.pid) for member in stubborn)
            raise LocalError(f"processes {pids} do not end even on KILL: look for a hung disk")

    def _wait(self, members: Sequence[Identity], timeout_s: float) -> list[Identity]:
        deadline = time.monotonic() + timeout_s
        while True:
            self._reap()
            left = [member for member in members if identity.is_alive(member)]
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(identity.POLL_S)

    def _reap(self) -> None:
        for child in self._children:
            child.poll()

    def _forget(self, entry: Entry) -> None:
        with files.locked(self._lock):
            # Only this start: the name may have been started again meanwhile.
            kept = {name: known for name, known in self.entries().items() if known.token != entry.token}
            self._write(kept)

    def _write(self, entries: Mapping[str, Entry]) -> None:
        files.write_json(self._path, {name: asdict(entry) for name, entry in entries.items()})


def _spawn(entry: Entry, variables: Mapping[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    with Path(entry.log).open("ab") as output:
        return subprocess.Popen(
            list(entry.command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(variables),
            cwd=cwd,
            start_new_session=True,
        )


def _leaders(entry: Entry) -> list[Identity]:
    """Return the process of that entry, or those with its token if its start was interrupted."""
    return [entry.identity] if entry.identity is not None else identity.carriers(TOKEN, entry.token)


def _carriers(entries: Iterable[Entry]) -> list[Identity]:
    """Return all processes that carry the token of one of these entries, in whatever session."""
    return [member for entry in entries for member in identity.carriers(TOKEN, entry.token)]


def last_line(log: Path) -> str:
    """Return the last line of a log that is not blank, cut to a readable length."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][-300:] if said else "its log is empty"
