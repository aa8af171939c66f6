"""An HTTP GET to another broker. Waits for the network: call it in a thread."""

import base64
import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from logyard.broker.errors import LogyardError

TIMEOUT_S = 10.0
"""How long each step may take: connecting, sending, and waiting for the next bytes of the answer."""
ANSWER_S_MAX = 60.0
"""How long the whole body may take: the caller's thread is not kept by an answer that comes byte by byte."""
PIECE_BYTES = 256 * 1024
ANSWER_BYTES_MAX = 16 << 20
HTTPS = "https://"


class NoAnswer(LogyardError):
    """The broker could not be reached, or did not answer 200."""


@dataclass(frozen=True, slots=True)
class HttpLogin:
    """How this broker is known at others' HTTP side: by the certificate of its context, or by user and password.

    They are used only where the other broker's address begins with https.
    """

    context: Callable[[], ssl.SSLContext] = ssl.create_default_context
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        """Return what is sent inside TLS."""
        if self.user is None:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()}


def get(address: str, path: str, login: HttpLogin) -> bytes:
    """Return the body of an answer of `host:port` or `https://host:port`; raises NoAnswer."""
    is_secured = address.startswith(HTTPS)
    place = address.removeprefix(HTTPS)
    url = f"{'https' if is_secured else 'http'}://{place}{path}"
    connection: http.client.HTTPConnection | None = None
    try:
        connection = (
            http.client.HTTPSConnection(place, timeout=TIMEOUT_S, context=login.context())
            if is_secured
            else http.client.HTTPConnection(place, timeout=TIMEOUT_S)
        )
        connection.request("GET", path, headers=login.headers() if is_secured else {})
        answer = connection.getresponse()
        data = _body(answer)
    # ValueError: what another broker has published is no address.
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NoAnswer(f"GET {url}: {error!r}") from error
    finally:
        if connection is not None:
            connection.close()
    if answer.status != 200:
        raise NoAnswer(f"GET {url}: status {answer.status}")
    if len(data) > ANSWER_BYTES_MAX:
        raise NoAnswer(f"GET {url}: more than {ANSWER_BYTES_MAX} bytes")
    return data


def _body(answer: http.client.HTTPResponse) -> bytes:
    """Read up to one byte more than ANSWER_BYTES_MAX. Raises OSError, HTTPException."""
    ends = time.monotonic() + ANSWER_S_MAX
    data = bytearray()
    while len(data) <= ANSWER_BYTES_MAX:
        piece = answer.read1(min(PIECE_BYTES, ANSWER_BYTES_MAX + 1 - len(data)))
        if not piece:
            break
        data += piece
        if time.monotonic() > ends:
            raise TimeoutError(f"the answer is not there after {ANSWER_S_MAX:.0f} s")
    if answer.length and len(data) <= ANSWER_BYTES_MAX:
        raise http.client.IncompleteRead(b"", answer.length)
    return bytes(data)
