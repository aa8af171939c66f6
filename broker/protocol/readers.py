"""Generates Python functions that decode a message of a schema and version.

They are generated because interpreting a schema at run time takes several times as long, and a LeaderAndIsr with
thousands of partitions is decoded on the event loop.
Rule 1: adjacent fields of fixed width are decoded by one struct call.
Rule 2: each length is checked against the end of the frame (or of its tagged field) before anything is allocated, so
        that the bytes received bound the memory.
Rule 3: an element of three bytes becomes objects of a hundred. Where that matters, `spend` hears of the memory that the
        elements of each list take, before they are made, and may refuse by an exception.
Rule 4: as in Kafka, bytes that are not UTF-8 become U+FFFD: clients hand on what their users call groups.
"""

import struct
from collections.abc import Callable

from logyard.broker.protocol import primitives
from logyard.broker.protocol.generated_source import Body, Module, literal, runs
from logyard.broker.protocol.schema import FIXED, ZERO_UUID, Field, Message
from logyard.broker.protocol.structs import Struct, struct_class

Reader = Callable[[memoryview, int, int], tuple[Struct, int]]

# About what values take in memory, in bytes: an object without its fields, a field, a number, a text, an empty list.
_OBJECT, _SLOT, _NUMBER, _TEXT, _LIST = 56, 8, 32, 60, 56

_MAKE = {
    "string": "str(data[pos:stop], 'utf-8', 'replace')",
    "bytes": "bytes(data[pos:stop])",
    "records": "data[pos:stop]",
}


def reader(message: Message, version: int, spend: Callable[[int], None] | None = None) -> Reader:
    """Return the function `(data, pos, end) -> (struct, next position)` for one version."""
    module = Module(
        message,
        version,
        {
            **({} if spend is None else {"spend": spend}),
            "ZERO_UUID": ZERO_UUID,
            "uuid_from": primitives.uuid_from,
            "uvarint_rest": primitives.read_uvarint_rest,
            "read_uvarint": primitives.read_uvarint,
            "bad_length": primitives.bad_length,
            "bad_null": primitives.bad_null,
            "unpack_from": struct.unpack_from,
        },
    )
    entry = _struct(module, message.name, message.fields)
    made: Reader = module.run(f"read {message.name} v{version}", entry)
    return made


def _struct(module: Module, path: str, fields: tuple[Field, ...]) -> str:
    """Define the function that decodes a struct, after those for the structs in it; return its name."""
    name = module.function_name("read")
    module.names[f"{name}_class"] = struct_class(path, tuple(f.name for f in fields))
    body = Body()
    for is_fixed, run in runs(module.plain(fields)):
        if is_fixed:
            _fixed(module, body, run)
        else:
            for f in run:
                _value(module, body, 1, path, f)
    tagged = module.tagged(fields)
    for f in fields:
        if not f.at(module.version) or f in tagged:
            body.add(1, f"v_{f.name} = {_default(module, path, f)}")
    if module.compact:
        _tags(module, body, path, tagged)
    body.add(1, f"return {name}_class({', '.join(f'v_{f.name}' for f in fields)}), pos")
    module.define(f"def {name}(data, pos, end):", body)
    return name


def _default(module: Module, path: str, f: Field) -> str:
    """Return the source text for the value of a field that the version does not have."""
    if f.default is None:
        return "None"
    if f.is_array:
        return "[]"
    if f.kind != "struct":
        return literal(f.default)
    made = f"default_{f.name}"
    inner = f"{path}.{f.name}"
    module.names[made] = struct_class(inner, tuple(sub.name for sub in f.fields))
    return f"{made}({', '.join(_default(module, inner, sub) for sub in f.fields)})"


def _fixed(module: Module, body: Body, run: list[Field]) -> None:
    codes = "".join(FIXED[f.kind][0] for f in run)
    targets = "".join(f"v_{f.name}, " for f in run)
    body.add(1, f"{targets}= {module.fixed(codes)}_read(data, pos)", f"pos += {sum(FIXED[f.kind][1] for f in run)}")
    body.add(1, *(f"v_{f.name} = uuid_from(v_{f.name})" for f in run if f.kind == "uuid"))


def _length(module: Module, body: Body, depth: int, width: int) -> None:
    """Read a length into `n`, -1 for null; `width` is its bytes in the classic form."""
    if module.compact:
        body.add(depth, "n = data[pos]", "pos += 1")
        body.add(depth, "if n > 127: n, pos = uvarint_rest(data, pos, n)", "n -= 1")
    else:
        read = module.fixed("h" if width == 2 else "i")
        body.add(depth, f"n, = {read}_read(data, pos)", f"pos += {width}")


def _value(module: Module, body: Body, depth: int, path: str, f: Field) -> None:
    """Decode a field into `v_<name>`."""
    target, here = f"v_{f.name}", f"{path}.{f.name}"
    null = f"{target} = None" if module.version in f.nullable else f"bad_null({here!r})"
    if f.is_array:
        _array(module, body, depth, here, f, null)
    elif f.kind in FIXED:
        code, width = FIXED[f.kind]
        body.add(depth, f"{target}, = {module.fixed(code)}_read(data, pos)", f"pos += {width}")
        if f.kind == "uuid":
            body.add(depth, f"{target} = uuid_from({target})")
    elif f.kind == "struct":
        call = f"{target}, pos = {_struct(module, here, f.fields)}(data, pos, end)"
        if module.version in f.nullable:
            body.add(depth, "pos += 1", "if data[pos - 1] > 127:", f"    {null}", "else:", f"    {call}")
        else:
            body.add(depth, call)
    else:
        _length(module, body, depth, 2 if f.kind == "string" else 4)
        _bytes(body, depth, here, f.kind, target, null)


def _bytes(body: Body, depth: int, here: str, kind: str, target: str, null: str) -> None:
    body.add(depth, "if n == -1:", f"    {null}", "else:")
    bounds = f"0 <= n <= {primitives.STRING_BYTES_MAX}" if kind == "string" else "0 <= n"
    body.add(depth + 1, "stop = pos + n", f"if not {bounds} or stop > end: bad_length({here!r}, n)")
    body.add(depth + 1, f"{target} = {_MAKE[kind]}", "pos = stop")


def _array(module: Module, body: Body, depth: int, here: str, f: Field, null: str) -> None:
    target = f"v_{f.name}"
    width = max(module.size_min(f.fields), 1) if f.kind == "struct" else FIXED[f.kind][1] if f.kind in FIXED else 1
    _length(module, body, depth, 4)
    body.add(depth, "if n == -1:", f"    {null}", "else:")
    depth += 1
    body.add(depth, f"if n < 0 or n * {width} > end - pos: bad_length({here!r}, n)")
    if "spend" in module.names:
        body.add(depth, f"spend(n * {_SLOT + _memory(f, is_element=True)})")
    if f.kind == "uuid":
        body.add(depth, f"{target} = [uuid_from(bytes(data[i:i + 16])) for i in range(pos, pos + 16 * n, 16)]")
        body.add(depth, "pos += 16 * n")
    elif f.kind in FIXED:
        body.add(depth, f"{target} = list(unpack_from('>%d{FIXED[f.kind][0]}' % n, data, pos))", f"pos += {width} * n")
    elif f.kind == "struct":
        body.add(depth, f"{target} = []", f"add = {target}.append", "for _ in range(n):")
        body.add(depth + 1, f"item, pos = {_struct(module, here, f.fields)}(data, pos, end)", "add(item)")
    else:
        body.add(depth, f"{target} = []", "for _ in range(n):")
        _length(module, body, depth + 1, 2 if f.kind == "string" else 4)
        _bytes(body, depth + 1, here, f.kind, "item", f"bad_null({here!r})")
        body.add(depth + 1, f"{target}.append(item)")


def _memory(f: Field, *, is_element: bool = False) -> int:
    """Return about how many bytes a value of the field takes, without the elements of lists in it."""
    if f.is_array and not is_element:
        return _LIST
    if f.kind == "struct":
        return _OBJECT + sum(_SLOT + _memory(sub) for sub in f.fields)
    return _NUMBER if f.kind in FIXED else _TEXT


def _tags(module: Module, body: Body, path: str, tagged: list[Field]) -> None:
    """Decode the tagged fields, and skip the unknown ones (KIP-482)."""
    body.add(1, "tags = data[pos]", "pos += 1", "if tags:")
    body.add(2, "if tags > 127: tags, pos = uvarint_rest(data, pos, tags)", "for _ in range(tags):")
    body.add(3, "tag, pos = read_uvarint(data, pos)", "size, pos = read_uvarint(data, pos)", "tag_end = pos + size")
    body.add(3, f"if tag_end > end: bad_length({path + ' tag'!r}, size)")
    if not tagged:
        body.add(3, "pos = tag_end")
        return
    word = "if"
    body.add(3, "frame_end, end = end, tag_end")
    for f in tagged:
        body.add(3, f"{word} tag == {f.tag}:")
        _value(module, body, 4, path, f)
        body.add(4, f"if pos != tag_end: bad_length({path + '.' + f.name!r}, size)")
        word = "elif"
    body.add(3, "pos = tag_end", "end = frame_end")
