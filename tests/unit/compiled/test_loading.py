"""The compiled loops are loaded beside a working event loop, or is done without."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from logyard.broker import extras
from logyard.broker.compiled import loading, record_look
from logyard.broker.log.validation import is_little
from logyard.broker.records import batch, compiled_look, compiled_loops, downconvert
from logyard.broker.records.batch import Bounds, Record
from tests.support.real_cluster import eventually


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    forget()
    yield
    forget()
    compiled_loops.load_by(None)


def forget() -> None:
    compiled_look.use(None)
    downconvert.use(None)


async def load() -> list[str]:
    """Load it; return what the log says, with reasons."""
    with structlog.testing.capture_logs() as logs:
        await loading.load(asyncio.to_thread)
    return [f"{entry['log_level']} {entry['event']} {entry.get('reason', '')}".strip() for entry in logs]


async def test_they_are_compiled_by_a_child_and_used() -> None:
    assert await load() == ["info many records are read in compiled loops"]
    made = batch.build([Record(n, n, None, b"v") for n in range(10)])
    assert compiled_look.look(memoryview(made), batch.parse_header(made)) == (9, 0, 0, False, True, True)
    assert downconvert.downconvert_at_once(memoryview(made), 1) is not None


def test_they_are_asked_for_once() -> None:
    asked = []
    compiled_loops.load_by(lambda: asked.append(1))
    small, large = (memoryview(batch.build([Record(0, 1, None, bytes(size))])) for size in (100, 100_000))
    for sent, count in ((small, 0), (large, 1), (large, 1)):
        is_little(sent, Bounds())
        assert len(asked) == count


def test_what_is_there_is_not_asked_for() -> None:
    asked = []
    compiled_loops.load_by(lambda: asked.append(1))
    compiled_look.use(record_look.Look)
    compiled_loops.want()
    assert not asked


async def test_without_numba_records_are_read_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda _: False)
    (said,) = await load()
    assert "pip install 'logyard[cleaner]'" in said
    assert not compiled_look.is_loaded()
    made = memoryview(batch.build([Record(0, 1, None, b"v")]))
    assert downconvert.downconvert_at_once(made, 1) is None


async def test_a_child_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho first >&2\necho 'LLVM ERROR: no such processor' >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(failing))
    assert await load() == ["warning many records are read one by one in C LLVM ERROR: no such processor"]
    failing.write_text("#!/bin/sh\nkill -9 $$\n")
    assert await load() == [
        "warning many records are read one by one in C the process that compiles them ended with -9"
    ]


async def test_a_place_that_keeps_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for loop in ("record_look", "old_conversion"):
        with monkeypatch.context() as changed:
            changed.setattr(f"logyard.broker.compiled.{loop}.is_kept", lambda: False)
            (said,) = await load()
        assert "set NUMBA_CACHE_DIR" in said
        assert not compiled_look.is_loaded()


async def test_the_child_ends_with_the_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\necho $$ > {noted}\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    task = asyncio.ensure_future(loading.load(asyncio.to_thread))
    while not (noted.exists() and noted.read_text().strip()):
        await asyncio.sleep(0.01)
    pid = int(noted.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(eventually, lambda: _is_gone(pid), "the child has ended")


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"
