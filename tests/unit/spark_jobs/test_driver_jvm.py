"""The archive of Spark's classes: whole or not there. That a JVM uses it is in tests/integration/spark."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs import driver_jvm


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def spark(monkeypatch: pytest.MonkeyPatch, written: bytes | None, status: int = 0) -> list[list[str]]:
    """Stands for spark-submit: writes that as the archive, and ends."""
    called: list[list[str]] = []

    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[bytes]:
        called.append(command)
        option = next(word for word in " ".join(command).split() if "ArchiveClassesAtExit" in word)
        if written is not None:
            Path(option.rpartition("=")[2]).write_bytes(written)
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(subprocess, "run", run)
    return called


def test_what_was_recorded_is_kept_and_used(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    before = driver_jvm.options()
    assert "SharedArchiveFile" not in before
    spark(monkeypatch, b"first")
    assert driver_jvm.make() == place / "spark-classes.jsa"
    assert driver_jvm.options().startswith(f"{before} -XX:SharedArchiveFile={place}/spark-classes.jsa ")
    spark(monkeypatch, b"second")
    driver_jvm.make()
    assert [file.read_bytes() for file in place.iterdir()] == [b"second"]


def test_a_path_with_blanks_is_one_word_of_sparks_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark splits the setting as a shell does; a JVM that gets half a path does not start."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / 'my "own" place'))

    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[bytes]:
        (setting,) = (word for word in command if word.startswith(driver_jvm.SETTING))
        option = shlex.split(setting.partition("=")[2])[0]
        Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(b"made")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    archive = driver_jvm.make()
    assert archive is not None
    assert f"-XX:SharedArchiveFile={archive}" in shlex.split(driver_jvm.options())


@pytest.mark.parametrize(("written", "status"), [(None, 0), (None, 1), (b"half", 1)])
def test_a_failed_recording_leaves_the_one_before(
    monkeypatch: pytest.MonkeyPatch, place: Path, written: bytes | None, status: int
) -> None:
    place.mkdir()
    (place / "spark-classes.jsa").write_bytes(b"before")
    spark(monkeypatch, written, status)
    assert driver_jvm.make() is None
    assert [file.read_bytes() for file in place.iterdir()] == [b"before"]


def test_without_spark_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    def run(command: list[str], **settings: Any) -> None:
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(subprocess, "run", run)
    assert driver_jvm.make() is None
    assert list(place.iterdir()) == []
