"""What peers put into names never begins a line of the broker's log."""

import io
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker import log_format

WHEN = "2026-01-01 00:00:00.000000"
FORGED = f"g\n{WHEN} INFO    [1] topic deleted  topic=flights"
BEGINS = re.compile(r"^\d{4}-")


def said(what: str, **values: Any) -> str:
    event = {"timestamp": WHEN, "level": "info", "event": what, "broker": 1, **values}
    return log_format.line(None, "info", event)


def test_a_line_is_as_it_was() -> None:
    assert said("group", group="g", note="two words", partitions=["a-0", "b-1"], count=3) == (
        f"{WHEN} INFO    [1] group  group=g note='two words' partitions=['a-0', 'b-1'] count=3"
    )
    assert said("groups loaded") == f"{WHEN} INFO    [1] groups loaded"
    assert said("named", topic="Grüße") == f"{WHEN} INFO    [1] named  topic=Grüße"


@pytest.mark.parametrize("name", [FORGED, "g\r2026-", "g\x1b[2J", "g\u2028x", "g\u0085x", "\ud800", "g\0", "a\u202eb"])
def test_a_name_cannot_begin_a_line(name: str) -> None:
    line = said(f"group {name}", group=name, groups=[name], nested={"k": (name,)}, error=ValueError(name))
    assert line.isprintable()
    line.encode()  # a stream takes it


@given(st.text(), st.text())
def test_no_text_makes_a_second_line(what: str, value: str) -> None:
    assert said(what, value=value, values=[value, value]).isprintable()


def test_a_traceback_is_indented_message_and_all() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        processed = structlog.processors.format_exc_info(None, "error", {"exc_info": error})
    lines = said("group work failed", **processed).split("\n")
    assert len(lines) > 3
    assert BEGINS.match(lines[0])
    assert all(line.startswith("    ") and line.isprintable() for line in lines[1:])


@pytest.fixture
def library() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_format.LineFormatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("tests.log_lines")
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, stream
    logger.removeHandler(handler)


def test_what_libraries_say_begins_no_line_either(library: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = library
    logger.warning("peer %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("failed")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "WARNING peer g"
    assert "ERROR failed" in lines
    assert all(line.startswith(("WARNING", "ERROR failed", "    ")) for line in lines)
