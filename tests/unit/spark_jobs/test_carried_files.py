"""Files that come in a variable: readable by their names' replacements, and in no environment afterwards."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from logyard.spark_jobs import carried_files


def test_a_jobs_words_name_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(carried_files.VARIABLE, json.dumps({"--security": '{"password": "ä"}', "--unused": ""}))
    words = carried_files.opened(["--security", "security.json", "--topic", "security.json"])
    assert (words[0], words[2:]) == ("--security", ["--topic", "security.json"])
    path = Path(words[1])
    assert [path.read_text(encoding="utf-8") for _ in range(2)] == ['{"password": "ä"}'] * 2
    assert not path.is_symlink() or os.readlink(path).startswith("/memfd:")
    assert stat.S_ISREG(path.stat().st_mode)
    inherited = subprocess.run([sys.executable, "-c", "import os; print(dict(os.environ))"], capture_output=True)
    assert b"password" not in inherited.stdout


def test_nothing_carried_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(carried_files.VARIABLE, raising=False)
    assert carried_files.opened(["--security", "security.json"]) == ["--security", "security.json"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 1}'])
def test_what_is_no_object_of_texts_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(carried_files.VARIABLE, text)
    with pytest.raises(ValueError, match=r"LOGYARD_JOB_FILES|Expecting"):
        carried_files.opened([])
