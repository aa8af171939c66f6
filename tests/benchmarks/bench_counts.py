"""How many bytecodes a request takes in the broker's Python: figures that no other work on the machine changes.

They are not time: what C code does is not in them. But a request that takes more of them than before has become dearer.
"""

import platform
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from tests.benchmarks import bench_path
from tests.benchmarks.harness import Row
from tests.support.inside_broker import InsideBroker

UNIT = "bytecodes"
# A twentieth of the requests that a round of bench_path.py has.
SHARE = 20


def measure(directory: Path) -> list[Row]:
    """Every row of this file; some seconds. Counts are of one version of Python, which is the note."""
    return uvloop.run(_measure(directory))


async def _measure(directory: Path) -> list[Row]:
    async with InsideBroker(directory, bench_path.SETTINGS) as broker:
        await bench_path.fill(broker)
        bench_path.rows(broker)["Produce 16 KB"][0]()  # what the fetches read
        note = "Python " + ".".join(platform.python_version_tuple()[:2])
        rows = []
        for name, (work, calls) in bench_path.rows(broker, SHARE).items():
            work()
            counter = Counter()
            sys.settrace(counter.called)
            try:
                work()
            finally:
                sys.settrace(None)
            rows.append(Row(f"{name}, counted", counter.bytecodes / calls, UNIT, note=note))
        return rows


class Counter:
    """A trace function that counts the bytecodes of all code but the tests' own."""

    def __init__(self) -> None:
        self.bytecodes = 0

    def called(self, frame: FrameType, event: str, _: Any) -> Any:
        if "/tests/" in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, _: FrameType, event: str, argument: Any) -> Any:
        self.bytecodes += event == "opcode"
        return self._count
