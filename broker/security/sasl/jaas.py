"""JAAS configuration as Kafka reads it: entries `Module flag name="value" …;`.

The words are those of Java's StreamTokenizer: comments as in C and C++, quotes with backslashes, names that begin with
a letter. No exception and no `repr` has a value, because values are passwords.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

FLAGS = ("required", "requisite", "sufficient", "optional")
# A broker's longest sensible entry has some thousand users of PLAIN.
TEXT_MAX = 4 * 1024 * 1024

_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n\r]*|/\*.*?\*/)"
    r"|(?P<word>[A-Za-z_$\u00a0-\uffff][-.\w$]*)"
    r"""|(?P<quoted>"(?:[^"\\\n\r]|\\[^\n\r])*"|'(?:[^'\\\n\r]|\\[^\n\r])*')"""
    r"|(?P<sign>[={};])",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_NAMED_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class BadJaas(ValueError):
    """A JAAS configuration cannot be read; the text says what is expected, and where, and quotes no value."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry: the module's class and its options, which may be secret."""

    name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def simple_name(self) -> str:
        """The class without its package: `PlainLoginModule`."""
        return self.name.rpartition(".")[2]


def parse(text: str) -> tuple[LoginModule, ...]:
    """Read the value of `sasl.jaas.config`: one entry or more. Raises BadJaas."""
    words = _Words(text)
    entries = []
    while not words.is_at_end:
        entries.append(_entry(words))
    if not entries:
        raise BadJaas('a login module is expected: Module required name="value";')
    return tuple(entries)


def parse_file(text: str) -> Mapping[str, tuple[LoginModule, ...]]:
    """Read a JAAS file: section → entries. Raises BadJaas."""
    words = _Words(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while not words.is_at_end:
        name = words.name("the name of a section")
        words.sign("{")
        entries = []
        while not words.skip("}"):
            entries.append(_entry(words))
        words.sign(";")
        if name in sections:
            raise BadJaas(f"section {name} is there twice")
        sections[name] = tuple(entries)
    return sections


class _Words:
    """The words of a text, one after the other."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise BadJaas(f"a JAAS configuration of at most {TEXT_MAX} characters is expected")
        self._words = _words(text)
        self._next: tuple[str, str, int] | None = next(self._words, None)

    @property
    def is_at_end(self) -> bool:
        return self._next is None

    def name(self, what: str) -> str:
        """Take a word or a quoted text."""
        kind, text, line = self._take(what)
        if kind not in ("word", "quoted"):
            raise BadJaas(f"line {line}: {what} is expected")
        return _unquoted(text) if kind == "quoted" else text

    def sign(self, sign: str) -> None:
        """Take this sign."""
        kind, text, line = self._take(f"{sign!r}")
        if kind != "sign" or text != sign:
            raise BadJaas(f"line {line}: {sign!r} is expected")

    def skip(self, sign: str) -> bool:
        """Take this sign if it is the next word; return whether it was."""
        if self._next is None or self._next[:2] != ("sign", sign):
            return False
        self._next = next(self._words, None)
        return True

    def _take(self, what: str) -> tuple[str, str, int]:
        if self._next is None:
            raise BadJaas(f"{what} is expected, but the text ends")
        taken, self._next = self._next, next(self._words, None)
        return taken


def _words(text: str) -> Iterator[tuple[str, str, int]]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadJaas(f"line {line}: a name, a quoted value or one of = {{ }} ; is expected (quote values)")
        if found.lastgroup != "space":
            yield str(found.lastgroup), found[0], line
        line += found[0].count("\n")
        at = found.end()


def _entry(words: _Words) -> LoginModule:
    name = words.name("a login module")
    flag = words.name("the module's flag")
    if flag.lower() not in FLAGS:
        raise BadJaas(f"the flag of {name} is one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    while not words.skip(";"):
        option = words.name(f"an option of {name} or ';'")
        words.sign("=")
        options[option] = words.name(f"a value of the option {option}")
    return LoginModule(name, flag.lower(), options)


def _unquoted(text: str) -> str:
    def plain(escape: "re.Match[str]") -> str:
        code = escape[1]
        return chr(int(code, 8)) if code.isdigit() and code[0] < "8" else _NAMED_ESCAPES.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1])
