"""Files that appear whole: two writers of one name, and a disk that is full."""

import errno
import os
from pathlib import Path

import pytest

from logyard.spark_jobs.atomic_file import draft_of, write_atomically


def test_processes_of_one_number_on_two_hosts_do_not_write_into_each_others_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers the driver is mostly process 1, and directories of reports are shared."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    path = str(tmp_path / "findings")
    with draft_of(path) as mine, draft_of(path) as theirs:
        Path(mine).write_bytes(b"mine")
        Path(theirs).write_bytes(b"th")
    assert Path(path).read_bytes() == b"mine", "the last that ended, and all of it"
    assert os.listdir(tmp_path) == ["findings"]


def test_what_a_full_disk_does_not_take_is_not_left_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.html"
    write_atomically(str(path), "before")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            write_atomically(str(path), "after")
    assert os.listdir(tmp_path) == ["index.html"]
    assert path.read_text() == "before"
