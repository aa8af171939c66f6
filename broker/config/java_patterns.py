"""Patterns of rules, and replacements as Java's Matcher makes them: `$1` is the first group, a backslash quotes.

Rules are an operator's, and what they are matched with a peer's: a pattern like `CN=(.*?),OU=(.*?),O=(.*?)$` takes
hours for a name that was made for it. So a match has a bound in time, and the process goes on with other work
meanwhile, which Python's own `re` does not let it do. The only module that knows the library `regex`.
"""

import re
from collections.abc import Callable
from typing import Any

from logyard.broker.late_import import imported_when_used

try:
    with imported_when_used("regex"):
        import regex
except ModuleNotFoundError as _problem:  # commands alone are installed, which have no rules of names
    _lacking: ModuleNotFoundError | None = _problem
else:
    _lacking = None

MATCH_S_MAX = 0.2
"""How long one match may take; those that mean no harm take microseconds."""

_REFERENCE = re.compile(r"\$(\d+)|\\(.)", re.DOTALL)
# Java's replacement fails on these when it is used; here they are refused before.
_BARE_DOLLAR = re.compile(r"(?<!\\)\$(?!\d)")
_GROUP = re.compile(r"(?<!\\)\$[1-9]")


def has_wrong_reference(replacement: str, groups: int) -> bool:
    """Whether a replacement refers to a group that a pattern with so many groups does not have."""
    return bool(_BARE_DOLLAR.search(replacement) or (not groups and _GROUP.search(replacement)))


class TooSlow(Exception):
    """A text was not matched within MATCH_S_MAX."""


class Pattern:
    """One regular expression. Its methods raise TooSlow."""

    def __init__(self, text: str) -> None:
        """Raise ValueError if the text is none, ModuleNotFoundError where the library is not installed."""
        if _lacking is not None:
            raise _lacking
        try:
            self._pattern: Any = regex.compile(text)
        except regex.error as error:
            raise ValueError(f"{text!r} is no regular expression ({error})") from None

    @property
    def groups(self) -> int:
        return int(self._pattern.groups)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return (
            self._within_time(lambda: self._pattern.fullmatch(text, concurrent=True, timeout=MATCH_S_MAX)) is not None
        )

    def replace(self, replacement: str, text: str, count: int = 0) -> str:
        """Replace so many matches in the text, all for 0, as `replaced` says."""
        made = replaced(replacement)
        return str(
            self._within_time(lambda: self._pattern.sub(made, text, count=count, concurrent=True, timeout=MATCH_S_MAX))
        )

    def _within_time(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except TimeoutError:
            raise TooSlow(f"a name was not matched within {MATCH_S_MAX} s: make the pattern simpler") from None


def replaced(replacement: str) -> Callable[[Any], str]:
    """Return what makes the replacement of a match: a function for `re.sub`.

    `$12` is group 12 if there is one, else group 1 and a 2; if there is no such group, it stays as it is.
    """

    def of_match(match: Any) -> str:
        def reference(found: "re.Match[str]") -> str:
            digits = found[1]
            if digits is None:
                return found[2]
            for end in range(len(digits), 0, -1):
                if int(digits[:end]) <= match.re.groups:
                    return (match[int(digits[:end])] or "") + digits[end:]
            return found[0]

        return _REFERENCE.sub(reference, replacement)

    return of_match
