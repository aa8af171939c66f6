"""The identity of a process: its pid **and** its start time, so that a reused pid is never mistaken for it.

A zombie counts as dead: it holds no port and no file any more.
"""

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

POLL_S = 0.05
EXEC_S = 0.2  # how long all processes in an exec are waited for, together, until they have their environment
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Stat:
    """The state of a process. `started` is in clock ticks since the machine booted."""

    pid: int
    is_dead: bool
    parent: int
    session: int
    started: int


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot of the machine."""

    pid: int
    started: int
    boot: str


def stat_of(pid: int) -> Stat | None:
    """Return the state of that pid, also of a zombie; None if there is no such process."""
    return next(iter(_stats([pid])), None)


def _stats(pids: Iterable[int]) -> list[Stat]:
    """Return the states of those pids that exist.

    psutil gives start times as times of day, which change if the clock is set; ticks since the boot do not.
    """
    wanted = list(pids)
    while True:
        booted = psutil.boot_time()
        found = [stat for pid in wanted if (stat := _stat(pid, booted)) is not None]
        if psutil.boot_time() == booted:  # else the clock was set meanwhile
            return found


def _stat(pid: int, booted: float) -> Stat | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            is_dead = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            ticks = round((process.create_time() - booted) * _TICKS_PER_S)
            return Stat(pid, is_dead, process.ppid(), os.getsid(pid), ticks)
    except (psutil.Error, ProcessLookupError):
        return None


def boot_id() -> str:
    """The kernel's id of this boot, from which start times are counted."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def identify(pid: int) -> Identity | None:
    """The identity of the process that has that pid now; None when it is gone or a zombie."""
    stat = stat_of(pid)
    return None if stat is None or stat.is_dead else Identity(pid, stat.started, boot_id())


def is_alive(identity: Identity) -> bool:
    """Whether that process still runs, and not another with its pid."""
    return identify(identity.pid) == identity


def snapshot() -> list[Stat]:
    """Return all processes of the machine that can be seen, without zombies."""
    return [stat for stat in _stats(psutil.pids()) if not stat.is_dead]


def family(leader: Identity) -> list[Identity]:
    """Return the leader (if alive), its descendants, and all processes of its session, parents first."""
    if leader.boot != boot_id():
        return []
    stats = snapshot()
    now = stat_of(leader.pid)
    if now is not None and now.started != leader.started:
        return []  # the pid was reused, which the kernel does only if its session is empty
    members = {stat.pid for stat in stats if leader.pid in (stat.pid, stat.session) and stat.started >= leader.started}
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat.pid)
    ordered: list[int] = sorted(members)
    for pid in ordered:
        ordered.extend(child for child in children.get(pid, []) if child not in members)
        members.update(children.get(pid, []))
    started = {stat.pid: stat.started for stat in stats}
    return [Identity(pid, started[pid], leader.boot) for pid in ordered if pid in started]


def carriers(name: str, value: str) -> list[Identity]:
    """Return the processes that were started with `name=value` in their environment, such as a token of ours."""
    boot, deadline = boot_id(), time.monotonic() + EXEC_S
    found: list[Identity] = []
    unread = list(snapshot())
    while unread:
        later = []
        for stat in unread:
            environment = _environment(stat.pid)
            if environment is None:
                later.append(stat)
            elif environment.get(name) == value:
                found.append(Identity(stat.pid, stat.started, boot))
        # Together: one that never has an environment must not use up the time of the others.
        unread = later if time.monotonic() < deadline else []
        if unread:
            time.sleep(POLL_S / 10)
    return found


def _environment(pid: int) -> dict[str, str] | None:
    """Return a process's environment; empty if the process is gone, another user's or the kernel's.

    None: it has to be read again. During an exec there is a moment in which a process has its new program but no
    environment yet. It would be overlooked when processes are stopped.
    """
    try:
        process = psutil.Process(pid)
        environment: dict[str, str] = process.environ()
        # A thread of the kernel has no program: there is nothing to wait for.
        return None if not environment and process.exe() else environment
    except psutil.Error:
        return {}


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal that process; False if it is gone, even if its pid was reused."""
    if not is_alive(identity):
        return False
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(identities: Iterable[Identity], timeout_s: float) -> list[Identity]:
    """Wait until all are gone; returns those that still run after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    left = [one for one in identities if is_alive(one)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [one for one in left if is_alive(one)]
    return left
