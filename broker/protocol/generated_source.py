"""Builds and compiles the Python source of the functions that `readers.py` and `writers.py` generate."""

import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from logyard.broker.protocol.schema import FIXED, Field, Message


class Module:
    """The functions for one message and version, and the names that they use."""

    def __init__(self, message: Message, version: int, names: dict[str, Any]) -> None:
        self.version = version
        self.compact = version in message.flexible
        self.names = names
        self._lines: list[str] = []
        self._functions = 0

    def function_name(self, stem: str) -> str:
        self._functions += 1
        return f"{stem}_{self._functions}"

    def fixed(self, codes: str) -> str:
        """Return the name of the big-endian struct with these format codes: NAME_read unpacks, NAME_pack packs."""
        name = "s_" + codes.replace("?", "t").replace("16s", "u")
        made = struct.Struct(">" + codes)
        self.names[name + "_read"] = made.unpack_from
        self.names[name + "_pack"] = made.pack
        return name

    def define(self, head: str, body: "Body") -> None:
        self._lines += [head, *body.lines]

    def run(self, label: str, entry: str) -> Any:
        """Compile the source and return the function named `entry`."""
        exec(compile("\n".join(self._lines), f"<{label}>", "exec"), self.names)
        return self.names[entry]

    def plain(self, fields: tuple[Field, ...]) -> list[Field]:
        """Return the fields of this version that are not tagged."""
        return [f for f in fields if f.at(self.version) and self.version not in f.tagged]

    def tagged(self, fields: tuple[Field, ...]) -> list[Field]:
        """Return the tagged fields of this version, by tag."""
        return sorted((f for f in fields if f.at(self.version) and self.version in f.tagged), key=lambda f: f.tag)

    def size_min(self, fields: tuple[Field, ...]) -> int:
        """Return the fewest bytes that a struct can have, which limits the length of an array of it."""
        total = 1 if self.compact else 0
        for f in self.plain(fields):
            if f.is_array or f.kind not in FIXED:
                total += self._prefix_min(f)
            else:
                total += FIXED[f.kind][1]
        return total

    def _prefix_min(self, f: Field) -> int:
        if f.kind == "struct" and not f.is_array:
            return 1 if f.nullable else self.size_min(f.fields)
        if self.compact:
            return 1
        return 2 if f.kind == "string" and not f.is_array else 4


class Body:
    """The indented lines of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]


def runs(fields: list[Field]) -> Iterator[tuple[bool, list[Field]]]:
    """Split the fields into runs of fixed width (True) and others."""
    for is_fixed, run in groupby(fields, key=lambda f: f.kind in FIXED and not f.is_array):
        yield is_fixed, list(run)


def literal(value: Any) -> str:
    """Return the source text of a default value."""
    return "ZERO_UUID" if hasattr(value, "hex") and hasattr(value, "bytes") else repr(value)
