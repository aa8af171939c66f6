"""Generates Python functions that encode a message of a schema and version (`readers.py` says why).

Rule 1: a writer takes mappings. A missing key gets the schema's default; keys that this version does not have are
        ignored.
Rule 2: if a value is None but may not be null in this version, it becomes the empty value if another version has null
        (as Kafka's brokers answer an empty protocol name), and is refused otherwise.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from logyard.broker.protocol import primitives
from logyard.broker.protocol.generated_source import Body, Module, literal, runs
from logyard.broker.protocol.schema import FIXED, ZERO_UUID, Field, Message

Writer = Callable[[bytearray, Mapping[str, Any]], None]

StructWriter = Callable[..., None]
"""Appends one struct to a bytearray: `(out, *values)`."""


class Prepared:
    """An array of structs that writes itself, with a `StructWriter` of the version: no mapping is made for each.

    No abstract class of `abc`: every array that is written is asked whether it is one, which takes longer there.
    """

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def append_to(self, out: bytearray) -> None:
        """Append the structs, without their number."""
        raise NotImplementedError


class Encoded(Prepared):
    """Structs that are encoded one by one, before the message is."""

    __slots__ = ("data", "length")

    def __init__(self) -> None:
        self.length, self.data = 0, bytearray()

    def __len__(self) -> int:
        return self.length

    def append_to(self, out: bytearray) -> None:
        out += self.data

    def add(self, write: StructWriter, *values: Any) -> None:
        write(self.data, *values)
        self.length += 1


def writer(message: Message, version: int) -> Writer:
    """Return the function `(out, mapping)`, which appends the body of one version to `out`.

    For values that do not fit it raises struct.error, TypeError or AttributeError; the codec turns these into
    ValueError, which names the message.
    """
    module = Module(message, version, _names_of_source())
    entry = _struct(module, message.name, message.fields)
    made: Writer = module.run(f"write {message.name} v{version}", entry)
    return made


def struct_writer(message: Message, version: int, path: Sequence[str], values: Sequence[str]) -> StructWriter:
    """Return the function `(out, *values)`, which appends one struct of the array at `path`, for `Prepared` arrays.

    `values` are names of fields in the order of its arguments; other fields get their defaults. Numbers' arrays are
    given as tuples, those of structs as for a `Writer`. It raises what a `Writer` raises.
    """
    fields = message.fields
    for name in path:
        fields = next(f.fields for f in fields if f.name == name)
    module = Module(message, version, _names_of_source())
    where = ".".join((message.name, *path))
    entry = _struct(module, where, fields, values)
    made: StructWriter = module.run(f"write {where} v{version}", entry)
    return made


def _names_of_source() -> dict[str, Any]:
    return {
        "Prepared": Prepared,
        "append_prepared": _append_prepared,
        "ZERO_UUID": ZERO_UUID,
        "uvarint": primitives.uvarint,
        "no_null": _no_null,
        "pack_any": struct.pack,
    }


def _append_prepared(out: bytearray, structs: Prepared) -> None:
    """What the generated source calls, in which a method's name would be found by nobody."""
    structs.append_to(out)


def _no_null(name: str) -> None:
    raise TypeError(f"{name} is None but has no null in this version")


def _struct(module: Module, path: str, fields: tuple[Field, ...], values: Sequence[str] | None = None) -> str:
    """Define the function that encodes a struct, after those for the structs in it; return its name.

    It takes a mapping, or these values one by one.
    """
    name = module.function_name("write")
    body = Body()

    def source(f: Field) -> str:
        if values is None:
            return f"get({f.name!r}, {literal(f.default)})"
        return f.name if f.name in values else literal(f.default)

    if values is None:
        body.add(1, "get = item.get")
    for is_fixed, run in runs(module.plain(fields)):
        if is_fixed:
            codes = "".join(FIXED[f.kind][0] for f in run)
            body.add(1, f"out += {module.fixed(codes)}_pack({', '.join(_fixed(f, source(f)) for f in run)})")
        elif values is not None and run[0].is_array and all(f.kind in FIXED and f.kind != "uuid" for f in run):
            for f in run:
                module.names[f"numbers_{f.kind}"] = _numbers(module.compact, FIXED[f.kind][0])
                body.add(1, f"out += numbers_{f.kind}({source(f)})")
        else:
            for f in run:
                body.add(1, f"v = {source(f)}")
                _value(module, body, 1, path, f)
    if module.compact:
        _tags(module, body, path, module.tagged(fields), source)
    arguments = "item" if values is None else ", ".join(values)
    module.define(f"def {name}(out, {arguments}):", body)
    return name


def _numbers(compact: bool, code: str) -> Callable[[tuple[int, ...]], bytes]:
    """Return what encodes an array of numbers, and keeps the last: lists of brokers are few, and come again."""

    @lru_cache(4096)
    def encoded(numbers: tuple[int, ...]) -> bytes:
        size = primitives.uvarint(len(numbers) + 1) if compact else struct.pack(">i", len(numbers))
        return size + struct.pack(f">{len(numbers)}{code}", *numbers)

    return encoded


def _fixed(f: Field, source: str) -> str:
    return f"({source} or ZERO_UUID).bytes" if f.kind == "uuid" else source


def _length(module: Module, body: Body, depth: int, width: int, value: str) -> None:
    if module.compact:
        body.add(depth, f"n = len({value}) + 1", "if n < 128: out.append(n)", "else: out += uvarint(n)")
    else:
        body.add(depth, f"out += {module.fixed('h' if width == 2 else 'i')}_pack(len({value}))")


def _value(module: Module, body: Body, depth: int, path: str, f: Field) -> None:
    """Encode the value in `v`."""
    here = f"{path}.{f.name}"
    if f.kind in FIXED and not f.is_array:
        value = "(v or ZERO_UUID).bytes" if f.kind == "uuid" else "v"
        body.add(depth, f"out += {module.fixed(FIXED[f.kind][0])}_pack({value})")
        return
    if f.kind == "struct" and not f.is_array:
        _nested(module, body, depth, here, f)
        return
    width = 2 if f.kind == "string" and not f.is_array else 4
    body.add(depth, "if v is None:")
    _null(module, body, depth + 1, here, f, width)
    body.add(depth, "else:")
    depth += 1
    if f.is_array:
        _length(module, body, depth, 4, "v")
        _items(module, body, depth, here, f)
    else:
        _bytes(module, body, depth, f.kind, "v")


def _nested(module: Module, body: Body, depth: int, here: str, f: Field) -> None:
    call = f"{_struct(module, here, f.fields)}(out, v)"
    if module.version in f.nullable:
        body.add(depth, "if v is None: out.append(255)", "else:", "    out.append(1)", f"    {call}")
    else:
        body.add(depth, f"if v is None: no_null({here!r})", call)


def _null(module: Module, body: Body, depth: int, here: str, f: Field, width: int) -> None:
    if module.version in f.nullable:
        body.add(depth, "out.append(0)" if module.compact else f"out += {bytes([255]) * width!r}")
    elif f.nullable:
        body.add(depth, "out.append(1)" if module.compact else f"out += {bytes(width)!r}")
    else:
        body.add(depth, f"no_null({here!r})")


def _bytes(module: Module, body: Body, depth: int, kind: str, value: str) -> None:
    if kind == "string":
        body.add(depth, f"raw = {value}.encode()")
        value = "raw"
    _length(module, body, depth, 2 if kind == "string" else 4, value)
    body.add(depth, f"out += {value}")


def _items(module: Module, body: Body, depth: int, here: str, f: Field) -> None:
    """Encode the elements of the array in `v`."""
    if f.kind == "uuid":
        body.add(depth, "for each in v: out += each.bytes")
    elif f.kind in FIXED:
        body.add(depth, f"out += pack_any('>%d{FIXED[f.kind][0]}' % len(v), *v)")
    elif f.kind == "struct":
        write = _struct(module, here, f.fields)
        body.add(
            depth,
            "if isinstance(v, Prepared): append_prepared(out, v)",
            "else:",
            f"    for each in v: {write}(out, each)",
        )
    else:
        body.add(depth, "for each in v:")
        _bytes(module, body, depth + 1, f.kind, "each")


def _tags(module: Module, body: Body, path: str, tagged: list[Field], source: Callable[[Field], str]) -> None:
    """Encode the tagged fields whose values differ from their defaults, by tag."""
    if not tagged:
        body.add(1, "out.append(0)")
        return
    body.add(1, "present = 0", "frame, out = out, bytearray()")
    for f in tagged:
        body.add(1, f"v = {source(f)}")
        differs = "v" if f.is_array else f"v != {literal(f.default)}"  # an empty array and an absent one are the same
        if f.kind == "struct" and not f.is_array:
            usual = [(sub.name, sub.default) for sub in f.fields if sub.at(module.version)]
            module.names[f"usual_{f.name}"] = usual
            differs = f"v and any(v.get(name, d) != d for name, d in usual_{f.name})"
        if f.kind == "uuid":
            differs = "v is not None and v != ZERO_UUID"
        body.add(1, f"if {differs}:")
        body.add(2, "present += 1", "tags, out = out, bytearray()")
        _value(module, body, 2, path, f)
        body.add(2, f"tags += uvarint({f.tag}) + uvarint(len(out)) + out", "out = tags")
    body.add(1, "frame += uvarint(present) + out")
