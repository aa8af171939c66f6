"""`logyard story`: where logs are found, and what is said when there is nothing to tell."""

import json
from pathlib import Path
from typing import Any

LINE = "2026-11-21 23:23:43.668461 INFO    [2] topics were created  event_id=7 cause=0 kind=CreateTopics topics=['t']\n"


def test_logs_of_a_directory_or_files(run: Any, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "broker-2.log"
    log.write_text(LINE)
    status, out, _ = run("story", "t", "--dir", str(tmp_path))
    assert (status, out.count("\n")) == (0, 2)
    assert run("story", "t", str(log))[1] == out
    assert json.loads(run("story", "t", str(log), "--json")[1])[0]["event"] == 7
    assert run("story", "u", str(log)) == (1, "", "logyard: these logs do not mention topic u\n")


def test_misuse(run: Any, tmp_path: Path) -> None:
    assert "name the brokers' logs" in run("story", "t")[2]
    assert "name the brokers' logs" in run("story", "t", "/x", "--dir", "/y")[2]
    assert run("story", "t", "--dir", str(tmp_path))[2] == (
        f"logyard: there are no broker logs in {tmp_path}/logs: "
        "give --dir of `logyard cluster start`, or name the logs\n"
    )
    assert run("story", "t", str(tmp_path))[2] == (
        f"logyard: {tmp_path} is a directory: name the logs in it, or give a cluster's by --dir\n"
    )
    assert run("story", "t", "/none")[2] == "logyard: /none: No such file or directory\n"
