"""The files in which runs of `logyard reassign` keep what they throttle until their moves start."""

import json
import os
from pathlib import Path

import pytest

from logyard.admin.reassignment.throttles.records import BROKER, Claim, Record, ThrottleSetting
from logyard.cli import throttle_records
from logyard.cli.throttle_records import FileRecords

RATE = ThrottleSetting(BROKER, "1", "leader.replication.throttled.rate")
MINE = Record("me", 1, claims={RATE: Claim("1000", looked=True, saw="7", written=("1000",))})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_another_process_finds_them_until_they_are_dropped() -> None:
    throttle_records.records_of("c").put(MINE)
    assert throttle_records.records_of("c").load() == [MINE]
    assert throttle_records.records_of("other").load() == []
    throttle_records.records_of("c").drop("me")
    throttle_records.records_of("c").drop("me")
    assert throttle_records.records_of("c").load() == []


def test_nothing_is_written_without_a_throttle(home: Path) -> None:
    assert throttle_records.records_of("c").load() == []
    assert list(home.iterdir()) == []


def test_what_cannot_be_read_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{")
    assert FileRecords(tmp_path).load() == []
    assert "x.json is ignored" in capsys.readouterr().err
    assert (tmp_path / "x.json").exists()


def test_where_nothing_can_be_written_this_process_remembers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    records = FileRecords(tmp_path / "file" / "below")
    records.put(MINE)
    records.put(MINE)
    assert records.load() == [MINE]
    assert capsys.readouterr().err.count("cannot record") == 1
    records.drop("me")
    assert records.load() == []


def test_a_run_lives_as_long_as_its_process() -> None:
    me = throttle_records.this_run()
    assert me.name != throttle_records.this_run().name
    assert me.lives(me.name)
    host, pid, started, boot, token = json.loads(me.name)
    assert pid == os.getpid()
    assert not me.lives(json.dumps([host, pid, started + 1, boot, token]))
    assert me.lives(json.dumps(["another host", pid, started + 1, boot, token]))
