"""What a connection may send until it has logged in, and what that means: a state machine without I/O (facts §18.1).

ApiVersions (optional, once, again after an error), then SaslHandshake, then tokens: after SaslHandshake v0 frames
without a header, after v1 SaslAuthenticate requests. Where GSSAPI is enabled, the first frame may be one of its tokens.
When a session is renewed (KIP-368), SaslHandshake comes first and has to name the same mechanism.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.protocol import codec, primitives
from logyard.broker.protocol.header import RequestHeader, parse_request_header
from logyard.broker.protocol.schema import API_NAMES
from logyard.broker.security.sasl.mechanism import GSSAPI

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
HANDSHAKE_VERSIONS, AUTHENTICATE_VERSIONS = (0, 1), (0, 2)
# Kafka's highest key; a larger one is no request of Kafka's.
API_KEY_MAX = 100
# No client's ApiVersions or SaslHandshake is longer. Tokens may be.
REQUEST_BYTES_MAX = 16 * 1024


class _Expects(Enum):
    ANYTHING = auto()  # the first frame of a connection
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    TOKEN = auto()
    WRONG_MECHANISM = auto()  # a handshake that renews a session with another mechanism: the next token is refused


@dataclass(frozen=True, slots=True)
class AskVersions:
    """An ApiVersions request, which the broker answers; tell `LoginPhase.versions_answered`."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A mechanism is chosen: send the answer. A `token` that is there already follows."""

    mechanism: str
    answer: bytes | None
    token: bytes | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the client; the answer is made by `LoginPhase.token_answer` or `refusal`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """The log-in fails: after the delay send the answer, if there is one, and close. `reason` is for the log."""

    reason: str
    answer: bytes | None = None


@dataclass(frozen=True, slots=True)
class RefuseRequest:
    """As `Refuse`; the answer has the form of the request's own API, with ILLEGAL_SASL_STATE."""

    reason: str


Step = AskVersions | Begin | Token | Refuse | RefuseRequest


class LoginPhase:
    """The state of one log-in. `renewed` is the mechanism of the session that is renewed, None for a first log-in."""

    def __init__(self, mechanisms: Sequence[str], renewed: str | None = None) -> None:
        self._mechanisms = list(mechanisms)
        self._renewed = renewed
        self._expects = _Expects.ANYTHING if renewed is None else _Expects.HANDSHAKE
        self._framed = False  # tokens are in SaslAuthenticate requests
        self._version = 0  # of the last SaslAuthenticate
        self._correlation_id = 0

    def take(self, frame: memoryview) -> Step:
        """Take a frame. Raises CorruptData if the connection is to be closed at once, without an answer."""
        if self._expects is _Expects.TOKEN:
            return self._token(frame)
        if self._expects is _Expects.WRONG_MECHANISM:
            return Refuse(f"the session is renewed with another mechanism than {self._renewed}")
        return self._request(frame)

    def versions_answered(self, *, accepted: bool) -> None:
        """Note whether the ApiVersions request got an answer without an error."""
        if accepted:
            self._expects = _Expects.HANDSHAKE

    def renewal(self, header: RequestHeader) -> "Begin | Refuse":
        """Take the SaslHandshake request that renews a session. Raises CorruptData."""
        return self._handshake(header)

    def token_answer(self, token: bytes, lifetime_ms: int) -> bytes:
        """Return the frame that answers the last token: `token`, which may be empty, and the session's lifetime."""
        if not self._framed:
            return len(token).to_bytes(4, "big") + token
        fields = {"error_code": 0, "auth_bytes": token, "session_lifetime_ms": lifetime_ms}
        return codec.encode_response(SASL_AUTHENTICATE, self._version, self._correlation_id, fields)

    def refusal(self, text: str) -> bytes | None:
        """Return the frame that refuses the last token with SASL_AUTHENTICATION_FAILED; None after handshake v0."""
        if not self._framed:
            return None
        fields = {"error_code": int(ErrorCode.SASL_AUTHENTICATION_FAILED), "error_message": text, "auth_bytes": b""}
        return codec.encode_response(SASL_AUTHENTICATE, self._version, self._correlation_id, fields)

    def _request(self, frame: memoryview) -> Step:
        header = _header(frame)
        if header is None:
            if self._expects is not _Expects.ANYTHING:
                raise CorruptData("a frame that is no Kafka request, in place of SaslHandshake")
            if GSSAPI not in self._mechanisms:
                return Refuse("the first frame is no Kafka request (a client without SASL, or with TLS?)")
            self._expects = _Expects.TOKEN
            return Begin(GSSAPI, None, bytes(frame))
        if self._expects is _Expects.ANYTHING:
            self._expects = _Expects.VERSIONS_OR_HANDSHAKE
        if header.api_key not in (SASL_HANDSHAKE, API_VERSIONS):
            return Refuse(f"{_api(header.api_key)} came before the log-in (a client without SASL?)")
        if len(frame) > REQUEST_BYTES_MAX:
            raise CorruptData(f"{_api(header.api_key)} of {len(frame)} bytes")
        if header.api_key == SASL_HANDSHAKE:
            return self._handshake(header)
        if self._expects is not _Expects.VERSIONS_OR_HANDSHAKE:
            raise CorruptData("a second ApiVersions before the log-in")
        return AskVersions()

    def _handshake(self, header: RequestHeader) -> "Begin | Refuse":
        if not HANDSHAKE_VERSIONS[0] <= header.api_version <= HANDSHAKE_VERSIONS[1]:
            raise CorruptData(f"SaslHandshake v{header.api_version} is not served")
        asked: str = codec.decode_request(SASL_HANDSHAKE, header.api_version, header.body).mechanism
        known = asked in self._mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        fields = {"error_code": int(code), "mechanisms": self._mechanisms}
        answer = codec.encode_response(SASL_HANDSHAKE, header.api_version, header.correlation_id, fields)
        if not known:
            return Refuse(f"the client asks for mechanism {asked[:64]!r}, which is not enabled", answer)
        self._framed = header.api_version >= 1
        if self._renewed not in (None, asked):
            self._expects = _Expects.WRONG_MECHANISM
        else:
            self._expects = _Expects.TOKEN
        return Begin(asked, answer)

    def _token(self, frame: memoryview) -> Step:
        if not self._framed:
            return Token(bytes(frame))
        header = _header(frame)
        if header is None:
            raise CorruptData("a frame that is no Kafka request, in place of SaslAuthenticate")
        if header.api_key != SASL_AUTHENTICATE:
            return RefuseRequest(f"{_api(header.api_key)} came during the log-in")
        low, high = AUTHENTICATE_VERSIONS
        if not low <= header.api_version <= high:
            raise CorruptData(f"SaslAuthenticate v{header.api_version} is not served")
        self._version, self._correlation_id = header.api_version, header.correlation_id
        return Token(_auth_bytes(header))


def _header(frame: memoryview) -> RequestHeader | None:
    """Return the header of a Kafka request; None if the frame is none."""
    try:
        header = parse_request_header(frame)
    except CorruptData:
        return None
    return header if 0 <= header.api_key <= API_KEY_MAX else None


def _auth_bytes(header: RequestHeader) -> bytes:
    """Return the token of a SaslAuthenticate request. Tagged fields are not looked at: there may be very many."""
    body = header.body
    try:
        if header.api_version >= 2:
            length, begin = primitives.read_uvarint(body, 0)
            length -= 1
        else:
            length, begin = int.from_bytes(body[:4], "big", signed=True), 4
    except primitives.MALFORMED as error:
        raise primitives.malformed("a SaslAuthenticate request", error) from error
    if length < 0 or begin + length > len(body):
        primitives.bad_length("auth_bytes", length)
    return bytes(body[begin : begin + length])


def _api(key: int) -> str:
    return API_NAMES.get(key, f"API {key}")
