"""An HTTP GET to another broker. Waits for the network: call it in a thread."""

import http.client

from logyard.broker.errors import LogyardError

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 << 20


class NoAnswer(LogyardError):
    """The broker could not be reached, or did not answer 200."""


def get(address: str, path: str) -> bytes:
    """Return the body of an answer; raises NoAnswer."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"GET http://{address}{path}: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise NoAnswer(f"GET http://{address}{path}: status {answer.status}")
    if len(data) > ANSWER_BYTES_MAX:
        raise NoAnswer(f"GET http://{address}{path}: more than {ANSWER_BYTES_MAX} bytes")
    return data
