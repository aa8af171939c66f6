"""The child process: real pipes, a real disk, and its end whatever ends its broker."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from logyard.broker.cleaner.child import Pace
from logyard.broker.cleaner.settings import CleanerSettings
from logyard.broker.cleaner.worker import ChildProcess, WorkerDied
from logyard.broker.log.disk.real import OsDisk
from tests.support.cleaning_world import Worker, cleaner_of
from tests.support.lease_world import TP, LeaseWorld, fill, latest
from tests.support.logs import content
from tests.unit.cleaner.test_engines import batches_of, lease_of

ORPHAN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "logyard.broker.cleaner.child"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


async def test_a_child_cleans_and_one_that_dies_is_told_and_replaced(tmp_path: Path) -> None:
    child = ChildProcess()
    async with LeaseWorld(OsDisk(), str(tmp_path)) as world:
        log = world.lead()
        cleaner = cleaner_of(world, Worker(world))
        fill(log, 60)
        before = content(log)
        assert await cleaner.clean_next(child)
        assert latest(content(log)) == latest(before)
        assert world.store.cleaner_offset(TP) == log.segments.active.base_offset
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied):
            await child.clean({})
        assert "KeyError" in (await child.clean({}))["message"]
        pid = child.pid
        await child.end()
        assert not alive(pid)


async def test_a_log_in_whose_work_a_child_died_is_cleaned_in_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numba.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    disk, child = OsDisk(), ChildProcess()
    lease = lease_of(disk, str(tmp_path / "lease"), batches_of(500, 20_000), 2)
    with pytest.raises(WorkerDied):
        await child.clean({"lease": lease, "keys_max": 100})
    assert "failed" not in await child.clean({"lease": lease, "keys_max": 100})
    with pytest.raises(WorkerDied):
        await child.clean({"lease": {**lease, "partition": 1}, "keys_max": 100})
    await child.end()


async def test_a_child_that_was_killed_while_it_was_idle_is_replaced(tmp_path: Path) -> None:
    child = ChildProcess()
    await child.clean({})
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while child.pid is not None:
            await asyncio.sleep(0.01)
    assert "KeyError" in (await child.clean({}))["message"]
    await child.end()


async def test_cancelling_ends_the_child(tmp_path: Path) -> None:
    child = ChildProcess()
    await child.clean({})
    pid = child.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    job = asyncio.ensure_future(child.clean({}))
    await asyncio.sleep(0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert not alive(pid)


def test_a_child_does_not_outlive_a_broker_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
        parent.wait()
    assert gone_within(pid, 10)


def test_work_is_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 100.0, list[float]()

    def wait(_: threading.Event, seconds: float) -> bool:
        nonlocal now
        now += seconds
        slept.append(seconds)
        return False

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(threading.Event, "wait", wait)
    pace = Pace()
    pace.set(1_000_000)
    for _ in range(8):
        pace(16 << 10)
    assert slept == [], "below the rate's first look"
    pace(180 << 10)
    assert slept == [pytest.approx(((8 * 16 + 180) << 10) / 1_000_000)]


def test_a_new_rate_wakes_who_sleeps_by_the_old_one() -> None:
    pace = Pace()
    pace.set(1)
    sleeping = threading.Thread(target=pace, args=(3600,), daemon=True)
    sleeping.start()
    pace.set(1e9)
    sleeping.join(10)
    assert not sleeping.is_alive()


async def test_a_child_takes_a_new_rate_in_the_midst_of_its_work(tmp_path: Path) -> None:
    child = ChildProcess()
    async with LeaseWorld(OsDisk(), str(tmp_path)) as world:
        world.lead()
        slow = CleanerSettings(bytes_per_second=1, dedupe_buffer_bytes=1 << 20)
        cleaner = cleaner_of(world, Worker(world), slow)
        log = world.store.logs.get(TP)
        assert log is not None
        fill(log, 60)
        cleaning = asyncio.ensure_future(cleaner.clean_next(child))
        while child.pid is None:
            await asyncio.sleep(0.01)
        child.pace(1e9)
        async with asyncio.timeout(30):
            assert await cleaning
        await child.end()


async def test_a_rate_that_changes_while_the_child_is_being_started_holds(tmp_path: Path) -> None:
    child = ChildProcess()
    async with LeaseWorld(OsDisk(), str(tmp_path)) as world:
        log = world.lead()
        slow = CleanerSettings(bytes_per_second=1, dedupe_buffer_bytes=1 << 20)
        cleaner = cleaner_of(world, Worker(world), slow)
        fill(log, 60)
        cleaning = asyncio.ensure_future(cleaner.clean_next(child))
        await asyncio.sleep(0)
        assert child.pid is None, "the lease is being taken, the child not there yet"
        child.pace(1e9)
        async with asyncio.timeout(30):
            assert await cleaning
        await child.end()
