"""Messages filled by schema, and kio's opinion on their bytes."""

import dataclasses
import datetime
import io
import random
import uuid
from collections.abc import Callable
from typing import Any

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.protocol import Entity

from logyard.broker.protocol.codec import schema
from logyard.broker.protocol.schema import ZERO_UUID, Field, Kind

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def filled(api_key: int, kind: Kind, version: int, seed: int) -> dict[str, Any]:
    """A tree for every field of that version: the same for the same seed, with nulls, empties and extremes in it."""
    rng = random.Random(f"{api_key} {kind} {version} {seed}")
    return _struct(schema(api_key, kind).fields, version, rng)


def _struct(fields: tuple[Field, ...], version: int, rng: random.Random) -> dict[str, Any]:
    return {f.name: _field(f, version, rng) for f in fields if f.at(version)}


def _field(f: Field, version: int, rng: random.Random) -> Any:
    if version in f.nullable and rng.random() < 0.2:
        return None
    if f.is_array:
        return [_one(f, version, rng) for _ in range(rng.choice((0, 1, 2, 3)))]
    return _one(f, version, rng)


def _one(f: Field, version: int, rng: random.Random) -> Any:
    if f.kind == "struct":
        return _struct(f.fields, version, rng)
    if f.kind in _BITS:
        return _integer(f, rng)
    made: dict[str, Callable[[], Any]] = {
        "bool": lambda: rng.random() < 0.5,
        "uint16": lambda: rng.choice((0, 1, 9092, 65535)),
        "uint32": lambda: rng.choice((0, 1, 2**32 - 1)),
        "float64": lambda: rng.choice((0.0, -1.5, 1e9)),
        "uuid": lambda: rng.choice((ZERO_UUID, uuid.UUID(int=rng.getrandbits(128)))),
        "string": lambda: rng.choice(("", "a", "tópico-✓", "x" * 126, "x" * 127, "y" * 300)),
        "bytes": lambda: rng.randbytes(rng.choice((0, 1, 127, 400))),
        "records": lambda: rng.randbytes(rng.choice((0, 1, 127, 20_000))),
    }
    return made[f.kind]()


def _integer(f: Field, rng: random.Random) -> int:
    if f.name.endswith("error_code"):
        return rng.choice((-1, 0, 1, 35, 87, 100))
    bits = _BITS[f.kind]
    if f.kind == "int64" and ("time" in f.name or "timestamp" in f.name):
        # kio makes dates of these, which end in the year 9999, and loses their milliseconds when it writes them.
        return rng.choice((0, 1000, 1_600_000_000_000))
    if "_ms" in f.name:
        return rng.choice((0, 1, 2**31 - 1)) if bits == 32 else rng.choice((0, 30_000))
    return rng.choice((0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), rng.randrange(2 ** (bits - 1))))


def kio_type(api_key: int, kind: Kind, version: int) -> type[Entity]:
    """kio's class for that message and version."""
    module = (
        load_payload_module(api_key, version, EntityType.request)
        if kind == "Request"
        else load_payload_module(api_key, version, EntityType.response)
    )
    made: type[Entity] = getattr(module, schema(api_key, kind).name)
    return made


def kio_decode(api_key: int, kind: Kind, version: int, body: bytes) -> tuple[Any, int]:
    """kio's reading of a body, and how many bytes it took."""
    return entity_reader(kio_type(api_key, kind, version))(body, 0)


def kio_encode(entity: Any) -> bytes:
    """kio's writing of what `kio_decode` returned."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def as_kio_sees(fields: tuple[Field, ...], version: int, tree: dict[str, Any], entity: Any) -> list[str]:
    """Where kio's object differs from our tree, name by name; empty when they agree."""
    names = [each.name for each in dataclasses.fields(entity)]
    ours = [f for f in fields if f.at(version)]
    if len(names) != len(ours):
        return [f"{type(entity).__name__} has {names}, we have {[f.name for f in ours]}"]
    found: list[str] = []
    for f, name in zip(ours, names, strict=True):
        if name.rstrip("_") not in (f.name, f.name.removesuffix("_ms"), f.name.removesuffix("_milliseconds")):
            found.append(f"{f.name} is called {name}")
        found += _differences(f, version, tree[f.name], getattr(entity, name))
    return found


def _differences(f: Field, version: int, ours: Any, theirs: Any) -> list[str]:
    if f.kind == "struct" and ours is not None:
        pairs = zip(ours, theirs, strict=True) if f.is_array else [(ours, theirs)]
        return [d for one, other in pairs for d in as_kio_sees(f.fields, version, one, other)]
    theirs = [_plain(v) for v in theirs] if isinstance(theirs, tuple) else _plain(theirs)
    if f.kind == "uuid" and ours == ZERO_UUID:
        ours = None
    if f.kind == "uuid" and f.is_array and ours is not None:
        ours = [None if each == ZERO_UUID else each for each in ours]
    if isinstance(theirs, datetime.datetime):
        theirs = round(theirs.timestamp() * 1000)
    return [] if ours == theirs else [f"{f.name}: {ours!r} here, {theirs!r} there"]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
