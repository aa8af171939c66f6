"""Decodes requests and encodes responses of all APIs but the hot paths of Produce, Fetch and ListOffsets.

Field names are Kafka's in snake_case. Decoded values are int, bool, float, str, bytes, uuid.UUID, None, lists, and
objects with such attributes; `records` are a memoryview of the frame. As in Kafka, bytes after the last field are
ignored.
"""

import struct
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import primitives
from logyard.broker.protocol.readers import Reader, reader
from logyard.broker.protocol.schema import API_NAMES, Kind, Message, load
from logyard.broker.protocol.writers import StructWriter, Writer, struct_writer, writer

CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
_SIZE = struct.Struct(">i")
_RESPONSE_HEAD = struct.Struct(">ii")
_REQUEST_HEAD = struct.Struct(">ihhi")
_UNFIT = (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)


@cache
def schema(api_key: int, kind: Kind) -> Message:
    """Return the schema of an API's request or response. Raises CorruptData for an unknown key."""
    if api_key not in API_NAMES:
        raise CorruptData(f"api key {api_key} is not known")
    return load(api_key, kind)


@cache
def _reader(api_key: int, kind: Kind, version: int) -> Reader:
    return reader(_at(api_key, kind, version), version)


@cache
def _counting_reader(api_key: int, version: int) -> Reader:
    return reader(_at(api_key, "Request", version), version, _spending.spend)


class _Spending(threading.local):
    """About how many bytes the request takes in memory that this thread decodes."""

    used = most = 0
    what = ""

    def begin(self, what: str, used: int, most: int) -> None:
        self.what, self.used, self.most = what, used, most

    def spend(self, more: int) -> None:
        self.used += more
        if self.used > self.most:
            raise CorruptData(f"{self.what} would take more than {self.most:,}")


_spending = _Spending()


@cache
def _writer(api_key: int, kind: Kind, version: int) -> Writer:
    return writer(_at(api_key, kind, version), version)


def _at(api_key: int, kind: Kind, version: int) -> Message:
    message = schema(api_key, kind)
    if not 0 <= version <= message.latest:
        raise CorruptData(f"{message.name} has no version {version}, only 0 to {message.latest}")
    return message


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return version in schema(api_key, "Request").flexible


def decode_request(api_key: int, version: int, body: memoryview) -> Any:
    """Decode the body of a request (all after its header). Raises CorruptData."""
    return _decode(api_key, "Request", version, memoryview(body))[0]


def decode_large_request(api_key: int, version: int, body: memoryview, memory_max: int) -> tuple[Any, int]:
    """Decode the body of a request; return it and about how many bytes it takes in memory.

    Raises CorruptData, also where these would be more than `memory_max`: before they are taken.
    """
    read = _counting_reader(api_key, version)
    _spending.begin(f"{API_NAMES[api_key]}Request v{version} of {len(body):,} bytes", len(body), memory_max)
    return _run(read, api_key, "Request", version, memoryview(body))[0], _spending.used


def encode_response(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    """Encode a complete response frame: size, header, body.

    `fields` is a tree of mappings and sequences. A missing key gets the schema's default (a missing error_message is
    null); keys that this version does not have are ignored. Raises ValueError for values that do not fit their field.
    """
    out = bytearray(_RESPONSE_HEAD.pack(0, correlation_id))
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        out.append(0)
    return _complete(out, api_key, "Response", version, fields)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, fields: Mapping[str, Any]
) -> bytes:
    """Encode a complete request frame: size, header, body; for `fields` see `encode_response`."""
    out = bytearray(_REQUEST_HEAD.pack(0, api_key, version, correlation_id))
    if (api_key, version) != (CONTROLLED_SHUTDOWN, 0):
        out += primitives.string(client_id)
    if is_flexible(api_key, version):
        out.append(0)
    return _complete(out, api_key, "Request", version, fields)


@cache
def struct_writer_of(
    api_key: int, kind: Kind, version: int, path: tuple[str, ...], values: tuple[str, ...]
) -> StructWriter:
    """Return what appends one struct of the message's array at `path` to a bytearray, for `writers.Prepared`.

    It is called as `(out, *values)`. Errors of an array that is written as the message is encoded become ValueError.
    """
    return struct_writer(_at(api_key, kind, version), version, path, values)


def decode_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """Decode a response frame (without its size field): correlation id and body. Raises CorruptData.

    An ApiVersions response with UNSUPPORTED_VERSION is decoded as version 0 (KIP-511).
    """
    frame = memoryview(frame)
    try:
        (correlation_id,) = _SIZE.unpack_from(frame, 0)
        pos = 4
        if api_key == API_VERSIONS:
            if int.from_bytes(frame[4:6], "big") == UNSUPPORTED_VERSION:
                version = 0
        elif is_flexible(api_key, version):
            # The header has no tagged fields that we know; usually it has none, one zero byte.
            pos = 5 if frame[4] == 0 else primitives.skip_tags(frame, pos, len(frame))
    except primitives.MALFORMED as error:
        raise primitives.malformed(f"{API_NAMES.get(api_key, api_key)}Response v{version}", error) from error
    return correlation_id, _decode(api_key, "Response", version, frame[pos:])[0]


def _decode(api_key: int, kind: Kind, version: int, body: memoryview) -> tuple[Any, int]:
    return _run(_reader(api_key, kind, version), api_key, kind, version, body)


def _run(read: Reader, api_key: int, kind: Kind, version: int, body: memoryview) -> tuple[Any, int]:
    try:
        return read(body, 0, len(body))
    except primitives.MALFORMED as error:
        raise primitives.malformed(f"{API_NAMES[api_key]}{kind} v{version}", error) from error


def _complete(out: bytearray, api_key: int, kind: Kind, version: int, fields: Mapping[str, Any]) -> bytes:
    try:
        _writer(api_key, kind, version)(out, fields)
    except _UNFIT as error:
        raise ValueError(f"{API_NAMES[api_key]}{kind} v{version}: {error}") from error
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)
