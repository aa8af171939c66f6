"""Decodes the request header by hand: libraries copy the whole frame for it."""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import primitives

# API keys by their first version with compact lengths and tagged fields (KIP-482; facts §19). SaslHandshake (17) and
# OffsetDelete (47) have none. A test compares this with the schemas.
_KEYS_BY_FIRST_FLEXIBLE: Final = {
    0: (45, 46, 50, 51, 56, 57, 58, 60, 61, 65, 66, 67, 68, 69),
    1: (27, 44, 48, 49),
    2: (5, 21, 22, 29, 30, 31, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43),
    3: (7, 10, 16, 18, 24, 25, 26, 28),
    4: (4, 12, 13, 14, 20, 23, 32),
    5: (15, 19),
    6: (2, 6, 9, 11),
    8: (8,),
    9: (0, 3),
    12: (1,),
}
FLEXIBLE_FROM: Final[Mapping[int, int]] = MappingProxyType(
    {api_key: version for version, api_keys in _KEYS_BY_FIRST_FLEXIBLE.items() for api_key in api_keys}
)
_NEVER: Final = 32767
_CONTROLLED_SHUTDOWN: Final = 7

_HEAD = struct.Struct(">hhi")
_HEAD_WITH_LENGTH = struct.Struct(">hhih")
_CLIENT_AT = _HEAD_WITH_LENGTH.size
_new = tuple.__new__  # hot path: a NamedTuple's own is Python


class RequestHeader(NamedTuple):
    """A request's header; `body` is the rest of the frame, not copied."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Decode the header of a request frame (without its size field). Raises CorruptData.

    ControlledShutdown v0 has no client id. A client id is never compact (KIP-482).
    """
    try:
        api_key, version, correlation_id, length = _HEAD_WITH_LENGTH.unpack_from(frame)
        if version == 0 and api_key == _CONTROLLED_SHUTDOWN:
            return RequestHeader(api_key, version, correlation_id, None, frame[_HEAD.size :])
        client_id: str | None = None
        pos = _CLIENT_AT
        if length >= 0:
            pos += length
            if pos > len(frame):
                primitives.bad_length("client id", length)
            client_id = str(frame[_CLIENT_AT:pos], "utf-8", "replace")  # as in Kafka
        elif length != -1:
            primitives.bad_length("client id", length)
        if version >= FLEXIBLE_FROM.get(api_key, _NEVER):
            # The header has no tagged fields that we know; usually it has none, one zero byte.
            pos = pos + 1 if frame[pos] == 0 else primitives.skip_tags(frame, pos, len(frame))
        return _new(RequestHeader, (api_key, version, correlation_id, client_id, frame[pos:]))
    except primitives.MALFORMED as error:
        raise CorruptData(f"the header of a request of {len(frame)} bytes is cut short or malformed") from error
