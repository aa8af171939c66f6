"""A log that cannot be written ends nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logyard.broker.log_stream import LossyStream

LOGS = """
import structlog
from logyard.broker.__main__ import configure_logging
from logyard.broker.log_levels import LogLevels
configure_logging(7, LogLevels())
for number in range(1000):
    structlog.get_logger("x").info("event", number=number)
print("came through", file=__import__("sys").stderr)
__import__("os")._exit(0)
"""


def test_lines_that_are_lost_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        stream = LossyStream(file)
        assert stream.write("one\n") == 4
        os.close(file.fileno())
        stream.write("two\n")
        stream.write("three\n")
        again = os.open(path, os.O_WRONLY | os.O_APPEND)
        if again != file.fileno():
            os.dup2(again, file.fileno())
            os.close(again)
        stream.write("four\n")
        stream.write("five\n")
    said = path.read_text().splitlines()
    assert (said[0], said[-1]) == ("one", "five")
    assert "2 lines of the log could not be written" in said
    assert "four" in said


@pytest.mark.parametrize("where", ["/dev/full", "a closed pipe"])
def test_a_broker_logs_on_where_nothing_can_be_written(where: str) -> None:
    if where == "/dev/full":
        out = os.open(where, os.O_WRONLY)
    else:
        reading, out = os.pipe()
        os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOGS], stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(out)
    assert (done.returncode, done.stderr.strip()) == (0, "came through")
