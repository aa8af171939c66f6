"""Requests to one broker over HTTP: with a token or a log-in, only to a server that proved to be that broker.

A broker whose address begins with https has TLS and log-ins: the driver logs in and gets a token for a run, a topic and
a purpose, and tasks have that token alone (docs/leases.md): the log-in is never pickled. Other brokers have one token.

No token or password appears in a message, a repr or a log line. Standard library only, so that executors need nothing
more.
"""

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, BinaryIO

from logyard.broker.errors import LogyardError
from logyard.login.http import HTTPS, HttpLogin, Trust, advice

PIECE_BYTES = 1024 * 1024
TIMEOUT_S = 60.0
HEALTH_TIMEOUT_S = 10.0
HEALTH_BYTES_MAX = 64 * 1024
COMMIT_TIMEOUT_S = 600.0
# What a proxy before a broker says while it has no answer of the broker's.
GATEWAYS = (502, 503, 504)
# The code of a LeaseError for an answer that is not as docs/leases.md says.
BAD_ANSWER = "bad_answer"


class LeaseError(LogyardError):
    """The broker refused, or could not be reached, or its answer makes no sense: `code` is one of docs/leases.md,
    `unreachable` or BAD_ANSWER."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return LeaseError, (self.code, str(self), self.details)


@dataclass(frozen=True, slots=True)
class BrokerHttp:
    """The address of one broker's lease API, and what it is asked with.

    :param address: host:port, or https://host:port.
    :param token: the broker's token, or that of a run; empty: none yet.
    :param trust: whom it trusts at an https address.
    :param login: the user that the driver logs in as; tasks do not have it.
    """

    broker_id: int
    address: str
    token: str = field(repr=False)
    trust: Trust | None = field(default=None, repr=False)
    login: HttpLogin | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return BrokerHttp, (self.broker_id, self.address, self.token, self.trust)

    @property
    def is_secured(self) -> bool:
        """Whether it has TLS and log-ins."""
        return self.address.startswith(HTTPS)

    @property
    def url(self) -> str:
        """The address for messages."""
        return self.address if self.is_secured else f"http://{self.address}"

    def answer_to(self, method: str, path: str) -> str:
        """Return the name of an answer for messages."""
        return f"broker {self.broker_id} at {self.url}: the answer to {method} {path}"

    def for_run(self, run_id: str, topic: str, purpose: str) -> "BrokerHttp":
        """Return it with the token of a run, where there are such tokens; raises LeaseError."""
        if not self.is_secured or self.login is None:
            return self
        answer = self.call("POST", "/tokens", {"run_id": run_id, "topic": topic, "purpose": purpose}, as_user=True)
        token = answer.get("token")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            said = "is missing" if token is None else "is no token"  # which is not shown, whatever it is
            raise LeaseError(BAD_ANSWER, f"{self.answer_to('POST', '/tokens')}: field token {said}")
        return replace(self, token=token)

    def end_run(self, run_id: str) -> None:
        """End a run with its tokens; never raises: a run that cannot be ended ends by itself."""
        if self.is_secured and self.token:
            with suppress(LeaseError):
                self.call("POST", "/runs/end", {"run_id": run_id}, 10.0)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
        *,
        as_user: bool = False,
    ) -> dict[str, Any]:
        """Send JSON, return JSON; raises LeaseError.

        :param as_user: with the driver's log-in, for what no token of a run allows.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        with _Exchange(self, method, path, data, headers, timeout_s, as_user=as_user) as response:
            return _object(response.read(), self.answer_to(method, path))

    def read(self, path: str, position: int, size: int, into: memoryview) -> int:
        """Read up to `size` bytes from `position` of a leased file into `into`; returns how many were read.

        Raises LeaseError, also for the whole file: a proxy between may ignore ranges, and its front is not what was
        asked for, which would look like damage.
        """
        headers = {"Range": f"bytes={position}-{position + size - 1}"}
        with _Exchange(self, "GET", path, None, headers, TIMEOUT_S) as response:
            if response.status != http.client.PARTIAL_CONTENT:
                raise LeaseError(BAD_ANSWER, f"{path}: a range was asked for, and the answer is {response.status}")
            got = 0
            while got < size:
                count = response.readinto(into[got:size])
                if not count:
                    break
                got += count
            return got

    def put(self, path: str, file: BinaryIO, size: int, sha256: str) -> dict[str, Any]:
        """Send a file in pieces; raises LeaseError."""
        headers = {"Content-Length": str(size), "X-Content-SHA256": sha256, "Content-Type": "application/octet-stream"}
        with _Exchange(self, "PUT", path, _pieces(file), headers, COMMIT_TIMEOUT_S) as response:
            return _object(response.read(), self.answer_to("PUT", path))


# (broker id, address) of brokers that were identified. After a failure a broker is asked again: another process may
# have its port.
known_addresses: set[tuple[int, str]] = set()


def require_own(broker: BrokerHttp) -> None:
    """Ask the server at a broker's address for its broker id, without sending the token; raises LeaseError if it is
    another.

    An address like 127.0.0.1 means another machine on every machine: without this check, whatever listens there would
    get the token.
    """
    if (broker.broker_id, broker.address) in known_addresses:
        return
    connection = _connection(broker, HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        answer: Any = json.loads(connection.getresponse().read(HEALTH_BYTES_MAX))
        said = answer.get("broker_id") if isinstance(answer, dict) else None
    except (OSError, http.client.HTTPException) as error:  # a refused certificate is a ValueError too
        raise _unreachable(broker, error) from None
    except ValueError:
        said = None
    finally:
        connection.close()
    if said != broker.broker_id:
        who = "no broker of Logyard" if said is None else f"broker {said}"
        raise LeaseError(
            "unreachable",
            f"broker {broker.broker_id} says it is at {broker.url}, but {who} answers there; no token was "
            "sent: set its http.advertised.listener to an address that this machine reaches it at",
        )
    known_addresses.add((broker.broker_id, broker.address))


class _Exchange:
    """One request on a connection of its own; turns every failure into LeaseError."""

    def __init__(
        self,
        broker: BrokerHttp,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        as_user: bool = False,
    ) -> None:
        self._broker, self._method, self._path = broker, method, path
        self._body, self._timeout_s = body, timeout_s
        login = broker.login if broker.is_secured and (as_user or not broker.token) else None
        self._context = None if login is None else login.context
        shown = f"Bearer {broker.token}" if login is None else login.authorization
        self._headers = {**headers, **({"Authorization": shown} if shown is not None else {})}
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> http.client.HTTPResponse:
        require_own(self._broker)
        self._connection = _connection(self._broker, self._timeout_s, self._context)
        try:
            self._connection.request(self._method, self._path, body=self._body, headers=self._headers)
            response = self._connection.getresponse()
            if response.status >= 400:
                raise _refusal(self._broker, response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            known_addresses.discard((self._broker.broker_id, self._broker.address))
            raise _unreachable(self._broker, error) from None
        except LeaseError:
            self._connection.close()
            raise
        return response

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._connection is not None:
            self._connection.close()
        if isinstance(error, (OSError, http.client.HTTPException)):
            raise LeaseError("unreachable", f"broker {self._broker.broker_id}: the connection broke: {error}") from None


def _connection(
    broker: BrokerHttp, timeout_s: float, context: ssl.SSLContext | None = None
) -> http.client.HTTPConnection:
    """Return a connection that is not open yet; without a context no certificate is shown."""
    host, _, port = broker.address.removeprefix(HTTPS).rpartition(":")
    place = host.strip("[]"), int(port)
    if not broker.is_secured:
        return http.client.HTTPConnection(*place, timeout=timeout_s)
    return http.client.HTTPSConnection(*place, timeout=timeout_s, context=context or _context(broker.trust or Trust()))


@lru_cache(maxsize=16)
def _context(trust: Trust) -> ssl.SSLContext:
    return trust.context()


def _unreachable(broker: BrokerHttp, error: OSError | http.client.HTTPException) -> LeaseError:
    why = advice(error) if isinstance(error, OSError) else str(error) or type(error).__name__
    return LeaseError("unreachable", f"broker {broker.broker_id} at {broker.url}: {why}")


def _refusal(broker: BrokerHttp, status: int, body: bytes) -> LeaseError:
    try:
        details = json.loads(body)
        code, message = str(details.pop("error")), str(details.pop("message"))
    except (ValueError, KeyError, TypeError, AttributeError):
        if status in GATEWAYS:
            return LeaseError("unreachable", f"broker {broker.broker_id} at {broker.url}: a gateway says {status}")
        code, message, details = f"http_{status}", "no explanation in the answer", {}
    return LeaseError(code, f"broker {broker.broker_id} refused ({code}): {message}", details)


def _object(body: bytes, where: str) -> dict[str, Any]:
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise LeaseError(BAD_ANSWER, f"{where} is not JSON: {error}") from None
    if not isinstance(answer, dict):
        raise LeaseError(BAD_ANSWER, f"{where} is no JSON object")
    return answer


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece
