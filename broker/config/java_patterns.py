"""Replacements in rules as Java's Matcher makes them: `$1` is the first group, a backslash quotes what follows it."""

import re
from collections.abc import Callable

_REFERENCE = re.compile(r"\$(\d+)|\\(.)", re.DOTALL)
# Java's replacement fails on these when it is used; here they are refused before.
_BARE_DOLLAR = re.compile(r"(?<!\\)\$(?!\d)")
_GROUP = re.compile(r"(?<!\\)\$[1-9]")


def has_wrong_reference(replacement: str, groups: int) -> bool:
    """Whether a replacement refers to a group that a pattern with so many groups does not have."""
    return bool(_BARE_DOLLAR.search(replacement) or (not groups and _GROUP.search(replacement)))


def replaced(replacement: str) -> Callable[["re.Match[str]"], str]:
    """Return what makes the replacement of a match: a function for `re.sub`.

    `$12` is group 12 if there is one, else group 1 and a 2; if there is no such group, it stays as it is.
    """

    def of_match(match: "re.Match[str]") -> str:
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
