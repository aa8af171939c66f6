"""The four messages of SCRAM (RFC 5802), as Kafka's ScramMessages reads and writes them (facts §18.1).

All are ASCII. Extensions (`,name=value`) are kept as they are, because both sides sign the messages' text.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_VALUE = r"[\x01-\x2B\x2D-\x7F]+"
_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_RESERVED = rf"(?:m={_VALUE},)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"

_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>{_RESERVED}n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(rf"(?P<unsigned>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})")
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message. `bare` is its text without the GS2 header; `extensions` those that it names."""

    user: str
    nonce: str
    authorization_id: str
    extensions: Mapping[str, str]
    bare: str


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The server's first message; `nonce` begins with the client's."""

    nonce: str
    salt: bytes
    iterations: int
    text: str


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's last message; `unsigned` is its text without the proof."""

    nonce: str
    proof: bytes
    unsigned: str


@dataclass(frozen=True, slots=True)
class ServerFinal:
    """The server's last message: its signature, or (never from Kafka) an error."""

    signature: bytes
    error: str | None


def escape(name: str) -> str:
    """Write a user's name as messages have it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    """Undo `escape`."""
    return name.replace("=2C", ",").replace("=3D", "=")


def client_first(message: bytes) -> ClientFirst:
    """Parse the client's first message. Raises ValueError."""
    found = _match(_CLIENT_FIRST, message)
    named = found["extensions"].split(",")[1:]
    return ClientFirst(
        unescape(found["user"]),
        found["nonce"],
        unescape(found["authzid"] or ""),
        dict(part.partition("=")[::2] for part in named),
        found["bare"],
    )


def server_first(message: bytes) -> ServerFirst:
    """Parse the server's first message. Raises ValueError."""
    found = _match(_SERVER_FIRST, message)
    return ServerFirst(found["nonce"], _decoded(found["salt"]), int(found["iterations"]), found[0])


def server_first_text(nonce: str, salt: bytes, iterations: int) -> str:
    """Write the server's first message."""
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


def client_final(message: bytes) -> ClientFinal:
    """Parse the client's last message. Raises ValueError."""
    found = _match(_CLIENT_FINAL, message)
    return ClientFinal(found["nonce"], _decoded(found["proof"]), found["unsigned"])


def server_final(message: bytes) -> ServerFinal:
    """Parse the server's last message. Raises ValueError."""
    found = _match(_SERVER_FINAL, message)
    return ServerFinal(_decoded(found["signature"] or ""), found["error"])


def _match(pattern: "re.Pattern[str]", message: bytes) -> "re.Match[str]":
    # Latin-1 keeps every byte apart, and no pattern has a byte above 0x7F.
    found = pattern.fullmatch(message.decode("latin-1"))
    if found is None:
        raise ValueError("not a SCRAM message of this step")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
