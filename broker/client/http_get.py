"""An HTTP GET to another broker. Waits for the network: call it in a thread."""

import base64
import http.client
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from logyard.broker.errors import LogyardError

TIMEOUT_S = 10.0
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
    connection = (
        http.client.HTTPSConnection(place, timeout=TIMEOUT_S, context=login.context())
        if is_secured
        else http.client.HTTPConnection(place, timeout=TIMEOUT_S)
    )
    try:
        connection.request("GET", path, headers=login.headers() if is_secured else {})
        answer = connection.getresponse()
        data = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"GET {url}: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise NoAnswer(f"GET {url}: status {answer.status}")
    if len(data) > ANSWER_BYTES_MAX:
        raise NoAnswer(f"GET {url}: more than {ANSWER_BYTES_MAX} bytes")
    return data
