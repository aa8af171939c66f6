"""Lines of a command's threads do not run into each other."""

import io
import sys
import threading

import pytest

from logyard.cli import progress


class Slow(io.StringIO):
    """A stream at which another thread takes its turn after each write."""

    def __init__(self) -> None:
        super().__init__()
        self.meet = threading.Barrier(2)

    def write(self, text: str) -> int:
        written = super().write(text)
        self.meet.wait(10)
        return written


def test_two_threads_say_their_lines_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", slow := Slow())
    threads = [threading.Thread(target=progress.say, args=(text,)) for text in ("starting ZooKeeper", "preparing")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(slow.getvalue().splitlines()) == ["preparing", "starting ZooKeeper"]
