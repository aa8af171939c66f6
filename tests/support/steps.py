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
