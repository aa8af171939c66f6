"""What of records is hidden from whom: rules by topic, field and role, from `[logyard] page_record_masks`. Pure.

    [{"topics": "payments\\\\..*", "fields": ["card.number", "email"], "unless": ["Admin"]}]

A field is a name, or a path with dots, wherever it is in a key or a value, or a header's name; `*` is everything. A key
or value in which fields cannot be found (it is no JSON and no MessagePack) is hidden as a whole.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.admin.settings import BadSettings
from logyard.plugins.logyard_ui.records.decoding import HIDDEN

STARS = "•••"
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """Hides `fields` of the topics that match, but not from who has one of the roles `unless`."""

    topics: re.Pattern[str]
    fields: frozenset[str]
    unless: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fields:
    """The names and paths, in small letters, that are hidden from one reader in one topic."""

    hidden: frozenset[str]

    def of_structure(self, content: Any) -> Any:
        """The content with stars for what is hidden; HIDDEN where all of it is, or it has no fields."""
        if EVERYTHING in self.hidden or not isinstance(content, (dict, list)):
            return HIDDEN
        return self._covered(content, "")

    def has(self, name: str) -> bool:
        """Whether a header is hidden."""
        return EVERYTHING in self.hidden or name.lower() in self.hidden

    def _covered(self, content: Any, path: str) -> Any:
        if isinstance(content, dict):
            return {
                name: STARS if self._hides(at := f"{path}.{name}".lower()) else self._covered(value, at)
                for name, value in content.items()
            }
        if isinstance(content, list):
            return [self._covered(value, path) for value in content]
        return content

    def _hides(self, path: str) -> bool:
        """`path` begins with a dot: `.card.number`."""
        return any(path.endswith(f".{name}") for name in self.hidden)


def read_rules(text: str) -> tuple[Rule, ...]:
    """Raises BadSettings: then no record may be shown."""
    if not text.strip():
        return ()
    try:
        return tuple(_rule(entry) for entry in json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, re.error):
        raise BadSettings(
            '[logyard] page_record_masks: a JSON list such as [{"topics": "pay.*", "fields": ["email"]}] is expected'
        ) from None


def fields_of(rules: Sequence[Rule], topic: str, roles: Iterable[str]) -> Fields | None:
    """What is hidden of that topic from who has these roles; None: nothing."""
    mine = {role.lower() for role in roles}
    found = {
        field for rule in rules if rule.topics.fullmatch(topic) and not rule.unless & mine for field in rule.fields
    }
    return Fields(frozenset(found)) if found else None


def _rule(entry: dict[str, Any]) -> Rule:
    fields, unless = entry["fields"], entry.get("unless", [])
    if not fields or not all(isinstance(name, str) and name for name in (*fields, *unless)):
        raise ValueError("names are expected")
    if isinstance(fields, str) or isinstance(unless, str) or set(entry) - {"topics", "fields", "unless"}:
        raise ValueError("lists are expected")
    return Rule(
        re.compile(str(entry.get("topics", ".*"))),
        frozenset(name.lower() for name in fields),
        frozenset(name.lower() for name in unless),
    )
