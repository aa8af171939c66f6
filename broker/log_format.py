"""The format of the broker's log: one line per event.

Rule: text that comes from peers (group and member ids, client ids, topics, header fields, errors) is written to the log
here and nowhere else. Characters that are not printable are escaped, so that no peer can forge a line; further lines of
an event (a traceback) are indented.
"""

import logging

import structlog

_INDENT = "    "


def shown(value: object) -> str:
    """Return a value as it is written after `key=`: quoted if it has blanks, escaped if it is not printable."""
    text = str(value)
    if text.isprintable() and " " not in text:
        return text
    told = repr(value)
    return told if told.isprintable() else ascii(told)


def escaped(text: str) -> str:
    """Return the text with all characters escaped that are not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def indented(text: str) -> str:
    """Return the text with its lines indented, so that none looks like another event."""
    return "\n".join(_INDENT + escaped(line) for line in text.splitlines())


def line(logger: object, method: str, event: structlog.typing.EventDict) -> str:
    """structlog's last processor: time, level, broker, what happened, key=value."""
    when, level = event.pop("timestamp"), event.pop("level")
    what, broker, trace = event.pop("event"), event.pop("broker", "-"), event.pop("exception", None)
    rest = " ".join(f"{escaped(key)}={shown(value)}" for key, value in event.items())
    made = f"{when} {level.upper():7} [{broker}] {escaped(str(what))}" + (f"  {rest}" if rest else "")
    return f"{made}\n{indented(str(trace))}" if trace else made


class LineFormatter(logging.Formatter):
    """The same for the messages of libraries, which use `logging`."""

    def format(self, record: logging.LogRecord) -> str:
        first, _, more = super().format(record).partition("\n")
        return f"{escaped(first)}\n{indented(more)}" if more else escaped(first)
