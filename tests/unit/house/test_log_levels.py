"""The levels of a broker's loggers: which hold, and what is written."""

import re
import subprocess
import sys

import pytest
import structlog

from logyard.broker.log_levels import AUDIT, LEVELS, LOGGERS, ROOT, LogLevels, NamedLogger
from tests.support import floors

WRITES = """
import logging, sys, structlog
from logyard.broker.__main__ import configure_logging
from logyard.broker.log_levels import LogLevels
levels = LogLevels()
configure_logging(7, levels)
groups, fetcher = structlog.get_logger("logyard.groups"), structlog.get_logger("logyard.fetcher").bind(more=1)
for setting in sys.argv[1:]:
    name, _, level = setting.partition("=")
    levels.set(name, level) if level else levels.unset(name)
    for of, log in (("groups", groups), ("fetcher", fetcher)):
        for how in ("debug", "info", "warning", "error"):
            getattr(log, how)(f"{of} {how}")
    logging.getLogger("kazoo").info("library info")
    logging.getLogger("kazoo").warning("library warning")
    print("--")
"""


def written(*settings: str) -> list[set[str]]:
    """What a broker's process writes after each of the settings."""
    done = subprocess.run(
        [sys.executable, "-c", WRITES, *settings], capture_output=True, text=True, timeout=60, check=True
    )
    line = re.compile(r"(groups|fetcher|library) (debug|info|warning|error)")
    found = [line.findall(part) for part in done.stdout.split("--\n")]
    return [{" ".join(words) for words in part} for part in found[:-1]]


def of(name: str, *how: str) -> set[str]:
    return {f"{name} {one}" for one in how}


def test_a_level_changes_what_is_written_at_once() -> None:
    usual, all_ = ("info", "warning", "error"), ("debug", "info", "warning", "error")
    library = {"library warning"}
    assert written("root=INFO", "logyard.groups=DEBUG", "logyard.groups=ERROR", "logyard.groups") == [
        of("groups", *usual) | of("fetcher", *usual) | library,
        of("groups", *all_) | of("fetcher", *usual) | library,
        of("groups", "error") | of("fetcher", *usual) | library,
        of("groups", *usual) | of("fetcher", *usual) | library,
    ]
    assert written("logyard=TRACE", "logyard.fetcher=FATAL", "root=ERROR", "logyard") == [
        of("groups", *all_) | of("fetcher", *all_) | library,
        of("groups", *all_) | library,
        of("groups", *all_),
        of("groups", "error"),
    ]


def test_a_library_writes_no_more_at_debug() -> None:
    """The library for ZooKeeper writes settings with their secrets there."""
    (found,) = written("root=TRACE")
    assert "library info" not in found


def test_who_has_no_level_has_that_above() -> None:
    levels = LogLevels()
    assert {levels.level(name) for name in LOGGERS} == {"INFO"}
    levels.set(ROOT, "ERROR")
    assert levels.level("logyard.groups") == "ERROR"
    assert levels.level(AUDIT) == "INFO"
    levels.set("logyard", "DEBUG")
    levels.set("logyard.groups", "WARN")
    assert (levels.level("logyard.groups"), levels.level("logyard.fetcher")) == ("WARN", "DEBUG")
    levels.unset("logyard.groups")
    levels.unset("logyard.fetcher")  # had none
    levels.unset(AUDIT)
    assert (levels.level("logyard.groups"), levels.level(AUDIT)) == ("DEBUG", "ERROR")
    assert levels.level("somebody.else") == "ERROR"


def test_who_follows_is_told_at_once_and_later() -> None:
    levels = LogLevels()
    told: list[bool] = []
    levels.follow(lambda: told.append(levels.is_written("logyard.zk", "DEBUG")))
    levels.set("logyard", "DEBUG")
    levels.unset("logyard")
    assert told == [False, True, False]


def test_a_critical_line_is_written_at_fatal() -> None:
    levels = LogLevels()
    levels.set(ROOT, "FATAL")
    logger = NamedLogger("logyard.zk", sys.stdout)
    assert levels.filtered(logger, "critical", {"event": "x"}) == {"event": "x"}
    with pytest.raises(structlog.DropEvent):
        levels.filtered(logger, "error", {"event": "x"})


def test_every_logger_of_the_broker_can_be_named() -> None:
    found = {
        name
        for path in (floors.ROOT / "broker").rglob("*.py")
        for name in re.findall(r"structlog\.get_logger\(([^)]*)\)", path.read_text())
    }
    named = {AUDIT if name == "AUDIT" else name.strip('"') for name in found}
    assert len(named) > 20
    assert named - set(LOGGERS) == set()
    assert set(LOGGERS) - named == {ROOT, "logyard"}
    assert sorted(LEVELS) == ["DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"]
