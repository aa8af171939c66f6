"""ssl.principal.mapping.rules: turns the subject of a client's certificate into the name of its principal.

The value is a list of `DEFAULT` and `RULE:pattern/replacement/[L|U]`. The first rule whose pattern matches the whole
subject gives the name; `$1` in its replacement is the first group (facts §18.2, KIP-371).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from logyard.broker.config import java_patterns

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,|$)", re.DOTALL)
_PARSER = re.compile(_RULE, re.DOTALL)


class NoRuleApplies(Exception):
    """No rule matches a subject, or not in time: its client has no name, and is not served."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: java_patterns.Pattern | None  # None: the subject as it is
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        try:
            if not self.pattern.matches(subject):
                return None
            name = self.pattern.replace(self.replacement, subject)
        except java_patterns.TooSlow as problem:
            raise NoRuleApplies(f"ssl.principal.mapping.rules: {problem} ({subject[:100]!r}…)") from None
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Raise ValueError, whose text names the rule that is wrong."""
        self._text = text
        self._rules: Sequence[_Rule] = [_rule(rule) for rule in _split(text.strip()) if rule]

    def name_of(self, subject: str) -> str:
        """Return the principal's name. Raises NoRuleApplies."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {subject!r}")


def _split(text: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(text)]


def _rule(text: str) -> _Rule:
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise ValueError(f"DEFAULT or RULE:pattern/replacement/[LU] is expected, not {text!r}")
    if match[1] is not None:
        return _Rule(None)
    pattern = java_patterns.Pattern(match[2])
    if java_patterns.has_wrong_reference(match[3], pattern.groups):
        raise ValueError(f"{text!r} refers to a group that its pattern does not have")
    return _Rule(pattern, match[3], match[4])
