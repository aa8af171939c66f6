"""Protobuf: the registry's text is compiled by protoc (grpcio-tools), messages are read by Google's library."""

import errno
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from logyard.operators.contents.schemas.fetching import Schema
from logyard.operators.contents.schemas.problems import Undecoded

NESTED_MAX = 20
# A file where others need a folder, a folder where a file is, a name that is too long.
_NAMES_FAULTS = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)
_ROOT = "logyard_root_schema.proto"
_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]*(/[A-Za-z0-9_\-][A-Za-z0-9_.\-]*)*")


class ProtobufReader:
    """Raises Undecoded where the schema cannot be used."""

    def __init__(self, schema: Schema, compile_s: float) -> None:
        found = FileDescriptorSet.FromString(_compiled(schema, compile_s))
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for file in found.file:
                self._pool.Add(file)
        except TypeError as problem:
            raise Undecoded(f"its Protobuf schema cannot be used: {_line(str(problem))}") from None
        self._file = next(file for file in found.file if file.name == _ROOT)
        self._classes: dict[str, Any] = {}

    def read(self, data: bytes) -> Any:
        """`data` begins with the message's indexes."""
        indexes, at = _indexes(data)
        message = self._class(indexes)()
        try:
            message.ParseFromString(data[at:])
            return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
        except (MemoryError, RecursionError):
            raise  # child.py has words for them
        except Exception as problem:  # DecodeError, and what json_format cannot tell (an Any of an unknown type)
            raise Undecoded(f"it does not fit its Protobuf schema: {type(problem).__name__}") from None

    def _class(self, indexes: list[int]) -> Any:
        """The message's class: its index among those of the file, then among those nested in it; entries of maps, which
        only the descriptor has, do not count."""
        name, messages = self._file.package, list(self._file.message_type)
        for index in indexes:
            if not 0 <= index < len(messages):
                raise Undecoded("it names a message that its Protobuf schema does not have")
            name = f"{name}.{messages[index].name}".lstrip(".")
            messages = [nested for nested in messages[index].nested_type if not nested.options.map_entry]
        if name not in self._classes:
            self._classes[name] = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
        return self._classes[name]


def _indexes(data: bytes) -> tuple[list[int], int]:
    """The message's indexes, and where its bytes begin. A count of 0 stands for the first message."""
    count, at = _varint(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= NESTED_MAX:
        raise Undecoded("its head, which names the message of its Protobuf schema, cannot be read")
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    return indexes, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    number = 0
    for place, byte in enumerate(data[at : at + 5]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise Undecoded("its head, which names the message of its Protobuf schema, cannot be read")


def _compiled(schema: Schema, compile_s: float) -> bytes:
    with tempfile.TemporaryDirectory(prefix="logyard-proto-") as name:
        folder, out = Path(name, "in"), Path(name, "out")
        folder.mkdir()
        _write(folder, _ROOT, schema)
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
        command += [f"--descriptor_set_out={out}", _ROOT]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=compile_s, cwd=name
            )
        except subprocess.TimeoutExpired:
            raise Undecoded("its Protobuf schema takes too long to compile") from None
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["protoc ended without a word"]
            raise Undecoded(f"its Protobuf schema cannot be used: {_line(said[0].removeprefix(_ROOT + ':'))}")
        return out.read_bytes()


def _write(folder: Path, name: str, schema: Schema) -> None:
    if not _NAME.fullmatch(name) or len(name) > 200:
        raise Undecoded("its Protobuf schema refers to a file of a name that is not allowed")
    for other, one in schema.references:
        if other != _ROOT:
            _write(folder, other, one)
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(schema.text)
    except OSError as problem:
        if problem.errno not in _NAMES_FAULTS:
            raise  # a full disk, for instance
        raise Undecoded("its Protobuf schema refers to a file of a name that is not allowed") from None


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
