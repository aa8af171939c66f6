"""sasl.kerberos.principal.to.local.rules: turns a Kerberos principal (`alice/admin@REALM`) into a user's name.

The value is a list of `DEFAULT` and `RULE:[n:format](pattern)s/from/to/g/L`. A rule is for principals with n components
(`alice/admin` has two). `$0` in its format is the realm, `$1` and `$2` are the components; the formatted text has to
match the pattern as a whole; then the first match of `from` (with g each) is replaced; L and U change the case. The
first rule that applies gives the name. DEFAULT takes the first component in the default realm (facts §18.1).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.broker.config import java_patterns

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"(?P<default>DEFAULT)"
    r"|RULE:\[(?P<count>[0-9]{1,9}):(?P<format>[^\]]*)\](?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<find>[^/]*)/(?P<to>[^/]*)/(?P<each>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"([^$]*)(\$([0-9]*))?")
_NOT_SIMPLE = re.compile(r"[/@]")


class NoLocalName(Exception):
    """A principal has no user's name: no rule applies, or the one that does gives no simple name."""


class _Rule(Protocol):
    def apply(self, realm: str, components: Sequence[str]) -> str | None:
        """Return the name, None if the rule is not for this principal. Raises NoLocalName."""
        ...


@dataclass(frozen=True, slots=True)
class _DefaultRule:
    realm: str

    def apply(self, realm: str, components: Sequence[str]) -> str | None:
        return components[0] if realm == self.realm else None


@dataclass(frozen=True, slots=True)
class _FormatRule:
    text: str
    count: int
    format: str
    pattern: java_patterns.Pattern | None
    find: java_patterns.Pattern | None
    to: str
    times: int  # 0: each match
    case: str

    def apply(self, realm: str, components: Sequence[str]) -> str | None:
        if len(components) != self.count:
            return None
        name = self._formatted((realm, *components))
        try:
            if self.pattern is not None and not self.pattern.matches(name):
                return None
            if self.find is not None:
                name = self.find.replace(self.to, name, self.times)
        except java_patterns.TooSlow as problem:
            raise NoLocalName(f"{self.text}: {problem}") from None
        if _NOT_SIMPLE.search(name):
            raise NoLocalName(f"{self.text} gives {name!r}, which is no simple name")
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _formatted(self, values: Sequence[str]) -> str:
        def parameter(found: "re.Match[str]") -> str:
            if found[2] is None:
                return found[1]
            if not found[3] or len(found[3]) > 9 or int(found[3]) >= len(values):
                raise NoLocalName(f"{self.text}: {found[2]} is none of $0 to ${len(values) - 1}")
            return found[1] + values[int(found[3])]

        return _PARAMETER.sub(parameter, self.format)


class KerberosNames:
    """The rules of one listener, and the default realm: "" if there is none."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raise ValueError, whose text names the rule that is wrong."""
        self._rules = [_rule(text, default_realm) for text in rules]

    def name_of(self, principal: str) -> str:
        """Return the user's name, which is never empty. Raises NoLocalName."""
        parts = _NAME.fullmatch(principal)
        if parts is None:
            if not principal or _NOT_SIMPLE.search(principal):
                raise NoLocalName(f"{principal!r} is no principal of the form name@REALM or name/host@REALM")
            return principal
        components = [part for part in (parts[1], parts[2]) if part is not None]
        for rule in self._rules:
            name = rule.apply(parts[3], components)
            if name is not None:
                if not name:
                    raise NoLocalName(f"a rule gives {principal!r} an empty name")
                return name
        raise NoLocalName(f"no rule of sasl.kerberos.principal.to.local.rules applies to {principal!r}")


def _rule(text: str, default_realm: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"DEFAULT or RULE:[n:format](pattern)s/from/to/g/L is expected, not {text!r}")
    if found["default"] is not None:
        return _DefaultRule(default_realm)
    pattern, find = (
        None if found[name] is None else java_patterns.Pattern(found[name]) for name in ("pattern", "find")
    )
    if find is not None and java_patterns.has_wrong_reference(found["to"], find.groups):
        raise ValueError(f"{text!r} refers to a group that its pattern does not have")
    times = 0 if found["each"] else 1
    return _FormatRule(
        text, int(found["count"]), found["format"], pattern, find, found["to"] or "", times, found["case"] or ""
    )
