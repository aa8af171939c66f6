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
from logyard.operators.contents.decoding import HIDDEN

STARS = "•••"
EVERYTHING = "*"
EVERY_CONNECTION = "*"


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

    def of_structure(self, content: Any, header: str = "") -> Any:
        """The content with stars for what is hidden; HIDDEN where all of it is, or it has no fields.

        `header`: the name of the header that has it, with which the paths of its fields begin.
        """
        if EVERYTHING in self.hidden or not isinstance(content, (dict, list)):
            return HIDDEN
        return self._covered(content, f".{header}".lower() if header else "")

    def has(self, name: str) -> bool:
        """Whether a header is hidden: its name is found as that of a field is."""
        return EVERYTHING in self.hidden or self._hides(f".{name}".lower())

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


def bared(rules: Sequence[Rule], topic: str, to_topic: str) -> list[str]:
    """The fields that are hidden in one topic, and would not be from everybody likewise in the other."""
    covering = [rule for rule in rules if rule.topics.fullmatch(to_topic)]
    return sorted(
        {
            field
            for rule in rules
            if rule.topics.fullmatch(topic)
            for field in rule.fields
            # Hidden there from all from whom it is hidden here.
            if not any(other.unless <= rule.unless and _covers(other.fields, field) for other in covering)
        }
    )


def shown_to_all(text: str, conn_id: str) -> bool:
    """Whether `[logyard] page_records` shows the records of that connection to every user of the page."""
    return bool({conn_id, EVERY_CONNECTION} & {name.strip() for name in text.split(",")})


def _covers(fields: frozenset[str], field: str) -> bool:
    """Whether these hide that one wherever it is: `number` hides `card.number` too."""
    return EVERYTHING in fields or any(field == one or field.endswith(f".{one}") for one in fields)


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
