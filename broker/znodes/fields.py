"""Reads and writes the JSON of znodes. It writes compact UTF-8, and accepts any key order and extra keys (facts §1).

A `Fields` has the znode's path, so that all errors name the znode and the key.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition


def dump(content: Mapping[str, Any]) -> bytes:
    """Write compact UTF-8 JSON, keys in the order given."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


_INTEGERS = frozenset({int})  # and not bool, which is a subclass


class Fields:
    """One JSON object of a znode. The methods that return values raise CorruptData, which names path and key."""

    __slots__ = ("_content", "_where")

    def __init__(self, where: str, content: Mapping[str, Any]) -> None:
        self._where = where
        self._content = content

    @classmethod
    def parse(cls, path: str, data: bytes) -> "Fields":
        """Parse a znode. Raises CorruptData if it is not one JSON object."""
        try:
            content = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as problem:
            raise CorruptData(f"znode {path}: not JSON: {problem}") from None
        if not isinstance(content, dict):
            raise CorruptData(f"znode {path}: a JSON object is expected, found {type(content).__name__}")
        return cls(path, content)

    def wrong(self, key: str, expected: str) -> CorruptData:
        """Return, but do not raise, the error about one key."""
        found = repr(self._content[key])[:60] if key in self._content else "nothing"
        return CorruptData(f"znode {self._where}: {expected} is expected at {key!r}, found {found}")

    def has(self, key: str) -> bool:
        """Whether the key has a value other than null."""
        return self._content.get(key) is not None

    def names(self) -> list[str]:
        """Return the keys in the order written."""
        return list(self._content)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a JSON integer, or `default` if the key is missing or null (None: that is an error)."""
        value = self._content.get(key)
        if value is None and default is not None:
            return default
        if not _is_integer(value):
            raise self.wrong(key, "an integer")
        return value

    def integer_text(self, key: str) -> int:
        """Return an integer that is written as a JSON string (Kafka's timestamps and producer ids), or as a number."""
        value = self._content.get(key)
        try:
            if isinstance(value, str):
                return int(value)
        except ValueError:
            pass
        if not _is_integer(value):
            raise self.wrong(key, "an integer in quotes")
        return value

    def text(self, key: str) -> str:
        value = self._content.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def object(self, key: str) -> "Fields":
        value = self._content.get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(f"{self._where} {key}", value)

    def optional_object(self, key: str) -> "Fields":
        """Return the object at the key, an empty one if it is missing or null."""
        return self.object(key) if self.has(key) else Fields(f"{self._where} {key}", {})

    def integers(self, key: str) -> tuple[int, ...]:
        value = self._content.get(key)
        if not isinstance(value, list) or not _INTEGERS.issuperset(map(type, value)):
            raise self.wrong(key, "a list of integers")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._content.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of strings")
        return tuple(value)

    def objects(self, key: str) -> list["Fields"]:
        value = self._content.get(key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, "a list of objects")
        return [Fields(f"{self._where} {key}[{index}]", item) for index, item in enumerate(value)]

    def topic_partition(self) -> TopicPartition:
        """Return the values of the keys `topic` and `partition`."""
        return TopicPartition(self.text("topic"), self.integer("partition"))

    def version(self, at_least: int = 1) -> int:
        """Return the value of `version`, which all of Kafka's znodes have."""
        version = self.integer("version")
        if version < at_least:
            raise self.wrong("version", f"a version of at least {at_least}")
        return version


def partitions_json(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    """Return a list of {topic, partition}, which several znodes have."""
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
