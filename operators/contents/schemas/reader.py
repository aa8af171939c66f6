"""What a key or value says by its schema: kind and content, as JSON has it."""

import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from logyard.admin.schema_registry import SchemaRegistry
from logyard.operators.contents.schemas.fetching import Registry, Schema
from logyard.operators.contents.schemas.problems import RegistryAway, Undecoded

READERS_MAX = 200
LACKING_S = 30.0
# Of the patience of whoever asks: what a compiler of a schema may take.
COMPILE_SHARE = 0.6
_EXTRA = "pip install 'logyard[schemas]' where records are decoded"


class _Reader(Protocol):
    def read(self, data: bytes) -> Any: ...


class SchemaReader:
    """Keeps readers by registry and id, at most READERS_MAX; a schema never changes under its id. Why there is none is
    kept for a short time only: a schema may be registered after the first record that names it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._registries: dict[SchemaRegistry, Registry] = {}
        self._kept: OrderedDict[tuple[SchemaRegistry, int], tuple[str, _Reader | _Lacking]] = OrderedDict()

    def reader(self, where: SchemaRegistry, number: int, patience_s: float) -> tuple[str, Callable[[bytes], Any]]:
        """The kind of a schema, and what reads the bytes that follow its id; that raises Undecoded.

        Raises Undecoded, RegistryAway. `patience_s`: what whoever asks waits for, of which a compiler gets a part.
        """
        known = (where, number)
        kind, reader = self._kept.get(known, ("", None))
        if reader is None or (isinstance(reader, _Lacking) and self._clock() >= reader.until):
            kind, reader = self._kept[known] = self._found(where, number, patience_s)
            if len(self._kept) > READERS_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(known)
        if isinstance(reader, _Lacking):
            raise Undecoded(reader.why)
        return kind, reader.read

    def _found(self, where: SchemaRegistry, number: int, patience_s: float) -> "tuple[str, _Reader | _Lacking]":
        if where not in self._registries:
            opened = _opened(where)  # if it cannot be used, the others stay as they are
            for registry in self._registries.values():
                registry.close()
            self._registries = {where: opened}
        try:
            schema = self._registries[where].schema(number)
            return schema.kind.lower(), _reader_of(schema, patience_s)
        except RegistryAway:
            raise  # it may be there the next time
        except Undecoded as why:
            return "", _Lacking(str(why), self._clock() + LACKING_S)


@dataclass(frozen=True, slots=True)
class _Lacking:
    """Why there is no reader, until it is looked for again."""

    why: str
    until: float


class _JsonReader:
    def read(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise Undecoded("its schema is a JSON Schema, and it is no JSON") from None


def _opened(where: SchemaRegistry) -> Registry:
    try:
        return Registry(where)
    except OSError as problem:  # no such file, or none that can be read as certificates
        raise RegistryAway(
            f"schema_registry_cafile cannot be used: {problem.strerror or type(problem).__name__}"
        ) from None


def _reader_of(schema: Schema, patience_s: float) -> _Reader:
    try:
        if schema.kind == "AVRO":
            from logyard.operators.contents.schemas.avro import AvroReader

            return AvroReader(schema)
        if schema.kind == "PROTOBUF":
            from logyard.operators.contents.schemas.protobuf import ProtobufReader

            return ProtobufReader(schema, patience_s * COMPILE_SHARE)
    except ImportError as problem:
        raise Undecoded(f"{problem.name} is missing: {_EXTRA}") from None
    if schema.kind == "JSON":
        return _JsonReader()
    raise Undecoded(f"its schema is of the type {schema.kind[:40]}, which is not known here")
