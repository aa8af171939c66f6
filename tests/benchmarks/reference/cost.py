"""What work costs a machine: CPU seconds and bytes written of the brokers, their children and the jobs, for a GB.

Bytes written are those of files (write_bytes of Linux), not of sockets; what is deleted before it reaches a disk counts
too. Of a process that has ended, its parent has them, and its CPU, once it has waited for it.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks.harness import process_cpu_s
from tests.benchmarks.reference.measure import Measured, broker_processes
from tests.support.real_cluster import RealCluster

_SET_CHILD_SUBREAPER = 36


class Spent(NamedTuple):
    """CPU seconds and bytes."""

    cpu_s: float
    written: int


class Meter:
    """Counts from its making on; `jobs`: processes that this one starts, and theirs, count too."""

    def __init__(self, cluster: RealCluster, *, jobs: bool = False) -> None:
        self._brokers, self._jobs = broker_processes(cluster), jobs
        if jobs:
            # Workers whose parent ends without waiting for them become ours, so that they are counted.
            ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._before = self._now()

    def figures(self, megabytes: float, what: str = "") -> Measured:
        """What a GB of the work has cost so far."""
        now = self._now()
        prefix = f"{what} " if what else ""
        return {
            f"{prefix}CPU s per GB": (now.cpu_s - self._before.cpu_s) / megabytes * 1000,
            f"{prefix}GB written per GB": (now.written - self._before.written) / 1e6 / megabytes,
        }

    def _now(self) -> Spent:
        spent = [_with_children(process) for process in self._brokers]
        if self._jobs:
            spent.append(_ended_children())
        return Spent(sum(each.cpu_s for each in spent), sum(each.written for each in spent))


def _with_children(process: psutil.Process) -> Spent:
    """A process, those that it has waited for, and those that run below it."""
    times = process.cpu_times()
    cpu, written = process_cpu_s(process.pid) + times.children_user + times.children_system, _written(process.pid)
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            cpu, written = cpu + process_cpu_s(child.pid), written + _written(child.pid)
    return Spent(cpu, written)


def _ended_children() -> Spent:
    _reap(psutil.Process().children())
    times = os.times()
    # The writes of this process itself are a few lines of JSON.
    return Spent(times.children_user + times.children_system, _written(os.getpid()))


def _reap(children: Iterable[psutil.Process]) -> None:
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


def _written(pid: int) -> int:
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])
