"""How much work something is, as a count that no other load on the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def lines_run(module: ModuleType, work: Callable[[], object]) -> int:
    """Do the work; returns how many lines of the module ran."""
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != module.__file__:
            return None
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


class Counted(int):
    """A number that counts how often one of its kind is compared or added, which Python's own loops do unseen."""

    uses = 0

    def __lt__(self, other: int) -> bool:
        Counted.uses += 1
        return super().__lt__(other)

    def __add__(self, other: int) -> "Counted":
        Counted.uses += 1
        return Counted(super().__add__(other))

    def __radd__(self, other: int) -> "Counted":
        Counted.uses += 1
        return Counted(super().__radd__(other))
