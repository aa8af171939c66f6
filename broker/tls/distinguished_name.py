"""A certificate's subject as text, as Java's X500Principal.getName() writes it (RFC 2253; facts §18.2).

Principals of ACLs and super users are compared with this text, so each character counts. Where the RFC leaves a choice
this follows Java: which attributes have a name, which values are written as `#` and hexadecimal DER, what is escaped.
"""

from collections.abc import Iterator
from typing import NamedTuple

_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# Tags of the types whose values Java writes as text: UTF8, Printable, T61, IA5, General and BMP strings.
_TEXTS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_ESCAPED = frozenset(',=+<>#;"\\')
_SPACES = " \r"


class _Element(NamedTuple):
    """One DER element: its tag, its content, and the whole of it."""

    tag: int
    content: bytes
    whole: bytes


def rfc2253(subject: bytes) -> str:
    """Return a Name (DER) as text, the last part first. Raises ValueError if it is no Name."""
    try:
        (name,) = _elements(subject)
        parts = ["+".join(_attribute(a) for a in _elements(rdn.content)) for rdn in _elements(name.content)]
    except IndexError:
        raise ValueError("a distinguished name ends within an element") from None
    return ",".join(reversed(parts))


def _attribute(attribute: _Element) -> str:
    oid, value = _elements(attribute.content)
    number = _oid(oid.content)
    name = _NAMES.get(number)
    if name is None or value.tag not in _TEXTS:
        return f"{name or number}=#{value.whole.hex()}"
    return f"{name}={_text(value.content)}"


def _text(content: bytes) -> str:
    """Java reads the bytes of every type of text as UTF-8."""
    text = content.decode("utf-8", "replace")
    escaped = "".join(f"\\{c}" if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    inner = escaped.lstrip(_SPACES)
    lead = escaped[: len(escaped) - len(inner)]
    kept = inner.rstrip(_SPACES)
    return "".join(f"\\{c}" for c in lead) + kept + "".join(f"\\{c}" for c in inner[len(kept) :])


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _elements(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        begin, size = at, data[at + 1]
        at += 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise IndexError(at)
        yield _Element(data[begin], data[at : at + size], data[begin : at + size])
        at += size
