"""Which engine cleans: compiled loops where a log is worth it and they load. Plain Python has the last word."""

import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from logyard.broker.cleaner import cleaning
from logyard.broker.cleaner.engines import SMALL_BYTES, Engines
from logyard.broker.cleaner.leased_log import Json
from logyard.broker.cleaner.worker import ChildProcess
from logyard.broker.clock import ManualClock
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import Disk, read_whole, write_whole
from logyard.broker.log.disk.real import OsDisk
from tests.support.batches import Rec, batch
from tests.support.cleaning_world import Worker, cleaner_of
from tests.support.lease_world import LeaseWorld

LARGE = [{"size": SMALL_BYTES}]


def lease_of(disk: Disk, home: str, batches: list[bytes], per_batch: int) -> Json:
    """Write one segment as the links of a lease; returns the lease's answer."""
    data = b"".join(batches)
    for name in ("links", "parts"):
        disk.make_directory(f"{home}/{name}", home if disk.exists(home) else "/")
    write_whole(disk, f"{home}/links/{0:020d}.log", data)
    end = len(batches) * per_batch
    row = {"base_offset": 0, "last_offset": end - 1, "size": len(data), "max_timestamp": -1, "mtime_ms": 0}
    return {
        "topic": "t",
        "partition": 0,
        "leader_epoch": 0,
        "now_ms": 10**12,
        "clean_offset": 0,
        "end_offset": end,
        "segments": [{**row, "files": {"log": len(data), "index": 0}}],
        "links_dir": f"{home}/links",
        "parts_dir": f"{home}/parts",
        "producers": [],
        "aborted_transactions": [],
        "config": {"segment.bytes": 1 << 30, "segment.index.bytes": 10**7, "delete.retention.ms": 1000},
    }


def batches_of(count: int, size: int) -> list[bytes]:
    return [batch([Rec(n * 2 + i, b"k%d" % (n % 3), bytes(size)) for i in range(2)]).encode() for n in range(count)]


def test_a_small_log_loads_nothing_and_what_is_loaded_is_used_for_all() -> None:
    engines = Engines(pytest.fail)
    assert engines.choose([{"size": SMALL_BYTES - 1}]).name == "plain"
    assert engines.choose([{"size": SMALL_BYTES - 1}, {"size": 1}]).name == "compiled"
    assert engines.choose([{"size": 1}]).name == "compiled"


async def test_where_numba_is_not_installed_plain_python_cleans_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert Engines(pytest.fail).choose(LARGE).name == "plain"
    async with LeaseWorld() as world:
        with capture_logs() as logs:
            cleaner = cleaner_of(world, Worker(world))
            cleaner.start()
            await cleaner.close()
        assert [line["event"] for line in logs if "plain Python" in line["event"]] == [
            "the cleaner works in plain Python, ten times slower: pip install 'logyard[cleaner]'"
        ]


def test_libraries_that_cannot_be_loaded_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    engines = Engines(said.append)
    name = "logyard.broker.cleaner.compiled_passes"
    monkeypatch.delattr("logyard.broker.cleaner.compiled_passes", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    assert [engines.choose(LARGE).name for _ in range(2)] == ["plain", "plain"]
    (line,) = said
    assert line.startswith("the cleaner works in plain Python from now on: ")


@pytest.mark.parametrize("at", [70, 17])
def test_both_engines_refuse_a_damaged_log_in_the_same_words(at: int) -> None:
    disk = MemoryDisk(ManualClock().now_ms)
    batches = batches_of(5, 50)
    torn = bytearray(batches[3])
    torn[at] ^= 1
    lease = lease_of(disk, "/lease", [*batches[:3], bytes(torn), batches[4]], 2)
    engines = Engines(pytest.fail)
    engines.choose(LARGE)
    request: Any = {"lease": lease, "keys_max": 100}
    refused = engines.answer(request, disk, cleaning.unthrottled)
    assert refused == cleaning.answer(request, disk, cleaning.unthrottled)
    assert refused["failed"] == "corrupt"
    assert "segment 0: batch at position" in refused["message"]


async def test_a_child_cleans_a_large_log_as_plain_python_does(tmp_path: Path) -> None:
    disk, home = OsDisk(), str(tmp_path)
    lease = lease_of(disk, home, batches_of(500, 20_000), 2)
    assert lease["segments"][0]["size"] > SMALL_BYTES
    plain = cleaning.answer({"lease": lease, "keys_max": 100}, disk, cleaning.unthrottled)
    part = read_whole(disk, f"{home}/parts/{0:020d}.part")
    child = ChildProcess()
    made = await child.clean({"lease": lease, "keys_max": 100})
    await child.end()
    assert {**made, "bytes_read": 0} == {**plain, "bytes_read": 0}
    assert read_whole(disk, f"{home}/parts/{0:020d}.part") == part
