"""Java's properties format, which server.properties is written in."""

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"
_HEX = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(text: str) -> dict[str, str]:
    """Read key=value lines: comments (#, !), continuation by a backslash, escapes; the last of a key wins.

    Raises ValueError for a malformed \\u escape, naming the line.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key, line)] = _unescape(value, line)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    # Only these end a line in Java; str.splitlines knows more.
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Cut at the first =, : or blank that is not escaped; blanks around the separator belong to neither side."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANK:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(text: str, line: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            parts.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            code = text[position : position + 4]
            if not _HEX.fullmatch(code):
                raise ValueError(f"malformed \\u escape in the line {line[:60]!r}")
            parts.append(chr(int(code, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(char, char))
    return "".join(parts)
