"""The client's side of SASL DIGEST-MD5 (RFC 2831) as ZooKeeper's server speaks it. Pure; kazoo has it only by a library
that is no longer maintained.

The server's realm and host name are always `zk-sasl-md5`. Java hashes names and passwords in ISO 8859-1 where that has
all their letters, else in UTF-8, as the RFC says.
"""

import hashlib
import hmac
import re

SERVICE, HOST = "zookeeper", "zk-sasl-md5"

_PAIR = re.compile(rb'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,\s]*))\s*(?:,|$)', re.DOTALL)
CHALLENGE_MAX = 4096


class BadChallenge(ValueError):
    """The server's message is not one of DIGEST-MD5, or does not show that it knows the password."""


class DigestMd5:
    """One log-in: `respond` to the challenge, then `check` the server's last message. `nonce` is random ASCII."""

    def __init__(self, username: str, password: str, nonce: str, uri: str = f"{SERVICE}/{HOST}") -> None:
        self._username = username
        self._password = password
        self._uri = uri.encode()
        self._nonce = nonce.encode("ascii")
        self._expected = b""

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to the server's challenge. Raises BadChallenge."""
        found = _parse(challenge)
        nonce, realm = found.get("nonce"), found.get("realm", HOST.encode())
        offered = found.get("qop", b"auth").replace(b" ", b"").split(b",")
        if not nonce or found.get("algorithm") != b"md5-sess" or b"auth" not in offered:
            raise BadChallenge("no challenge of DIGEST-MD5 with md5-sess and qop auth")
        secret = _md5(b":".join((_encoded(self._username), realm, _encoded(self._password))))
        session = _md5(b":".join((secret, nonce, self._nonce))).hex().encode()

        def proof(method: bytes) -> bytes:
            last = _md5(method + b":" + self._uri).hex().encode()
            return _md5(b":".join((session, nonce, b"00000001", self._nonce, b"auth", last))).hex().encode()

        self._expected = proof(b"")
        fields = (
            b"charset=utf-8",
            b'username="' + _escaped(self._username.encode()) + b'"',
            b'realm="' + _escaped(realm) + b'"',
            b'nonce="' + _escaped(nonce) + b'"',
            b"nc=00000001",
            b'cnonce="' + self._nonce + b'"',
            b'digest-uri="' + self._uri + b'"',
            b"maxbuf=65536",
            b"response=" + proof(b"AUTHENTICATE"),
            b"qop=auth",
        )
        return b",".join(fields)

    def check(self, last: bytes) -> None:
        """Raise BadChallenge unless the server's last message shows that it knows the password."""
        if not self._expected or not hmac.compare_digest(_parse(last).get("rspauth", b""), self._expected):
            raise BadChallenge("the server does not know the password")


def _parse(message: bytes) -> dict[str, bytes]:
    """Return the first value of each name. Raises BadChallenge."""
    if len(message) > CHALLENGE_MAX:
        raise BadChallenge(f"a message of {len(message)} bytes")
    found: dict[str, bytes] = {}
    position = 0
    while position < len(message):
        pair = _PAIR.match(message, position)
        if pair is None:
            raise BadChallenge("a message that is not a list of name=value")
        quoted = pair[2]
        value = pair[3] if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        found.setdefault(pair[1].decode("ascii"), value)
        position = pair.end()
    return found


def _encoded(text: str) -> bytes:
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
