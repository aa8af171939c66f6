"""Who a process is: its pid **and** the moment it started, so that a reused pid is never taken for it.

Everything is read from /proc. A zombie counts as dead: it holds no port and no file any more.
"""

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
POLL_S = 0.05
EXEC_S = 0.2  # how long all processes in the midst of an exec are given, together, to have their environment


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat that matter here. `started` is in clock ticks since the machine booted."""

    pid: int
    state: str
    parent: int
    session: int
    started: int


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot of the machine."""

    pid: int
    started: int
    boot: str


def parse_stat(text: str) -> Stat:
    """Read a line of /proc/PID/stat; the command in it may hold blanks and parentheses."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(int(head.split(" ", 1)[0]), fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def stat_of(pid: int) -> Stat | None:
    """What /proc says of that pid now; None when there is no such process."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, IndexError):
        return None


def boot_id() -> str:
    """The kernel's name for this boot: start times are counted from it."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> Identity | None:
    """The identity of the process that has that pid now; None when it is gone or a zombie."""
    stat = stat_of(pid)
    return None if stat is None or stat.state in "ZX" else Identity(pid, stat.started, boot_id())


def is_alive(identity: Identity) -> bool:
    """Whether that very process still runs, not merely its pid."""
    return identify(identity.pid) == identity


def snapshot() -> list[Stat]:
    """Every process of the machine that can be seen now, zombies left out."""
    found = (stat_of(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
    return [stat for stat in found if stat is not None and stat.state not in "ZX"]


def family(leader: Identity) -> list[Identity]:
    """The leader (where alive), everything it begot and everything in its session, parents first."""
    if leader.boot != boot_id():
        return []
    stats = snapshot()
    now = stat_of(leader.pid)
    if now is not None and now.started != leader.started:
        return []  # the pid was given away, which the kernel does only when its session is empty
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
    """Every process that was started with `name=value` in its environment: what a token of ours marks."""
    wanted = f"{name}={value}".encode()
    boot = boot_id()
    deadline = time.monotonic() + EXEC_S
    return [
        Identity(stat.pid, stat.started, boot)
        for stat in snapshot()
        if wanted in _environment(stat.pid, deadline).split(b"\0")
    ]


def _environment(pid: int, deadline: float) -> bytes:
    """What that process was started with; empty for one that is gone, somebody else's or the kernel's.

    In an exec there is a moment in which a process has its new program but no environment yet, and reads as
    empty. It would be left behind by whoever looks for what to end, so it is asked again until `deadline`.
    """
    folder = PROC / str(pid)
    try:
        while not (environment := (folder / "environ").read_bytes()) and time.monotonic() < deadline:
            (folder / "exe").readlink()  # the kernel's own threads have no program: nothing to wait for
            time.sleep(POLL_S / 10)
    except OSError:
        return b""
    return environment


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal that process if it is still itself; False where it is gone."""
    if not is_alive(identity):
        return False
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(identities: Iterable[Identity], timeout_s: float) -> list[Identity]:
    """Wait until all are gone; returns those that are not after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    left = [one for one in identities if is_alive(one)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [one for one in left if is_alive(one)]
    return left
