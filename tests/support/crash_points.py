"""Dying right before and right after every call that changes files, in this process."""

import os
from collections.abc import Callable
from typing import Any

import pytest


class Crash(BaseException):
    """Passes everything that expects an Exception, as SIGKILL does."""


def crash_points(run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, reset: Callable[[], None], step: int) -> int:
    """Run as often as `run` has calls that change files, dying right before and right after each (each `step`th of
    these points); returns how many there are.

    In between, `reset` is called. What dies does not clean up: the process would be gone.
    """
    changing = ("link", "replace", "unlink", "makedirs")
    point = 0
    while True:
        left = point
        died = False

        def dying(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal left, died
                if died:
                    return None  # the dead change nothing more
                before, left = left == 0, left - 1
                if before:
                    died = True
                    raise Crash
                answer = function(*arguments, **named)
                after, left = left == 0, left - 1
                if after:
                    died = True
                    raise Crash
                return answer

            return call

        with monkeypatch.context() as patched:
            for name in changing:
                patched.setattr(os, name, dying(getattr(os, name)))
            patched.setattr("shutil.rmtree", dying(export_rmtree))
            try:
                run()
            except Crash:
                pass
            else:
                return point
        reset()
        point += step


def export_rmtree(path: str, ignore_errors: bool = False) -> None:
    """Remove a tree by calls that are not watched (one step, or the count of points would never end)."""
    os.system(f"rm -rf '{path}'")
