"""The one line of JAAS in `sasl.jaas.config`: `Module flag key="value" …;`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_FLAGS = ("required", "requisite", "sufficient", "optional")
_WORD = re.compile(r"""\s*([A-Za-z0-9_.$]+)""")
_OPTION = re.compile(r"""\s+([A-Za-z0-9_.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")
# As Java's StreamTokenizer reads what is quoted.
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_END = re.compile(r"\s*;\s*$")


@dataclass(frozen=True, slots=True)
class Entry:
    """A login module and its options, which are secret."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse(text: str) -> Entry:
    """Parse one entry. Raises ValueError that says what is expected, never with the text, which holds a password."""
    module = _WORD.match(text)
    flag = _WORD.match(text, module.end()) if module else None
    if module is None or flag is None or flag[1].lower() not in _FLAGS:
        raise ValueError('sasl.jaas.config: `Module required key="value" …;` is expected')
    options: dict[str, str] = {}
    place = flag.end()
    while found := _OPTION.match(text, place):
        quoted = found[2] if found[2] is not None else found[3]
        options[found[1]] = found[4] if quoted is None else _ESCAPE.sub(_meant, quoted)
        place = found.end()
    if not _END.match(text, place):
        last = f"after {list(options)[-1]}" if options else f"after {flag[1]}"
        raise ValueError(f'sasl.jaas.config: key="value" or the final semicolon is expected {last}')
    return Entry(module[1], options)


def written(module: str, options: Mapping[str, str]) -> str:
    """Return the line of one required entry; `parse` reads it."""
    parts = [f'{name}="{_quoted(value)}"' for name, value in options.items()]
    return " ".join([module, "required", *parts]) + ";"


def _meant(escape: "re.Match[str]") -> str:
    code = escape[1]
    return chr(int(code, 8)) if code.isdigit() and code[0] < "8" else _NAMED.get(code, code)


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
