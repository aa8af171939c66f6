"""Generates Python functions that encode a message of a schema and version (`readers.py` says why).

Rule 1: a writer takes mappings. A missing key gets the schema's default; keys that this version does not have are
        ignored.
Rule 2: if a value is None but may not be null in this version, it becomes the empty value if another version has null
        (as Kafka's brokers answer an empty protocol name), and is refused otherwise.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from logyard.broker.protocol import primitives
from logyard.broker.protocol.generated_source import Body, Module, literal, runs
from logyard.broker.protocol.schema import FIXED, ZERO_UUID, Field, Message

Writer = Callable[[bytearray, Mapping[str, Any]], None]


class Shared(list[Mapping[str, Any]]):
    """An array of structs that is in several messages: it is encoded once, and its bytes are used again.

    It is for what a controller sends to all brokers; it must not change after the first message is encoded.
    """

    def __init__(self, items: Iterable[Mapping[str, Any]] = ()) -> None:
        super().__init__(items)
        self.written: dict[str, bytes] = {}


class SharedItem(dict[str, Any]):
    """A struct that is in arrays of several messages: `SharedItems` encode it once, for one kind of array at a time.

    It is for what a controller sends to some brokers; it must not change after the first message is encoded.
    """

    __slots__ = ("form", "written")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.form = ""
        self.written = b""


class SharedItems(list[SharedItem]):
    """An array of them."""


def writer(message: Message, version: int) -> Writer:
    """Return the function `(out, mapping)`, which appends the body of one version to `out`.

    For values that do not fit it raises struct.error, TypeError or AttributeError; the codec turns these into
    ValueError, which names the message.
    """
    names: dict[str, Any] = {
        "Shared": Shared,
        "SharedItems": SharedItems,
        "ZERO_UUID": ZERO_UUID,
        "uvarint": primitives.uvarint,
        "no_null": _no_null,
        "pack_any": struct.pack,
    }
    module = Module(message, version, names)
    entry = _struct(module, message.name, message.fields)
    made: Writer = module.run(f"write {message.name} v{version}", entry)
    return made


def _no_null(name: str) -> None:
    raise TypeError(f"{name} is None but has no null in this version")


def _struct(module: Module, path: str, fields: tuple[Field, ...]) -> str:
    """Define the function that encodes a struct, after those for the structs in it; return its name."""
    name = module.function_name("write")
    body = Body()
    body.add(1, "get = item.get")
    for is_fixed, run in runs(module.plain(fields)):
        if is_fixed:
            codes = "".join(FIXED[f.kind][0] for f in run)
            body.add(1, f"out += {module.fixed(codes)}_pack({', '.join(_fixed(f) for f in run)})")
        else:
            for f in run:
                body.add(1, f"v = get({f.name!r}, {literal(f.default)})")
                _value(module, body, 1, path, f)
    if module.compact:
        _tags(module, body, path, module.tagged(fields))
    module.define(f"def {name}(out, item):", body)
    return name


def _fixed(f: Field) -> str:
    if f.kind == "uuid":
        return f"(get({f.name!r}) or ZERO_UUID).bytes"
    return f"get({f.name!r}, {literal(f.default)})"


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
        write, key = _struct(module, here, f.fields), f"{here} v{module.version}"
        body.add(
            depth,
            f"if type(v) is Shared and {key!r} in v.written: out += v.written[{key!r}]",
            "elif type(v) is SharedItems:",
            "    for each in v:",
            f"        if each.form != {key!r}:",
            "            begin = len(out)",
            f"            {write}(out, each)",
            f"            each.form, each.written = {key!r}, bytes(out[begin:])",
            "        else: out += each.written",
            "else:",
            "    begin = len(out)",
            f"    for each in v: {write}(out, each)",
            f"    if type(v) is Shared: v.written[{key!r}] = bytes(out[begin:])",
        )
    else:
        body.add(depth, "for each in v:")
        _bytes(module, body, depth + 1, f.kind, "each")


def _tags(module: Module, body: Body, path: str, tagged: list[Field]) -> None:
    """Encode the tagged fields whose values differ from their defaults, by tag."""
    if not tagged:
        body.add(1, "out.append(0)")
        return
    body.add(1, "present = 0", "frame, out = out, bytearray()")
    for f in tagged:
        default = literal(f.default)
        body.add(1, f"v = get({f.name!r}, {default})")
        differs = "v" if f.is_array else f"v != {default}"  # an empty array and an absent one are the same
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
