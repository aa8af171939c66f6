"""Connects to a cluster by kafka-python's admin client, and asks by it.

Its bootstrap picks one server at random and may wait for a hung one until the end: here servers are tried in turn.
Where connections are lost, it is looked who listens (`other_listeners.py`).
"""

import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from logyard.admin.cluster.other_listeners import mistake
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.login.library.client import is_refused_login, open_admin
from logyard.login.meanings import plain
from logyard.login.oauth import NoToken
from logyard.login.security import BadSettings

log = logging.getLogger(__name__)

_RETRY_PAUSE_S = 0.25
# So long nothing is said; who gives up soon says why, in a moment.
NOTICE_S = 5.0


class Connection:
    """kafka-python's admin client, and the manager of connections that it sends requests by.

    `admin` has the calls that kafka-python makes for its users; `send` takes any of its requests.
    """

    def __init__(self, admin: Any, manager: Any) -> None:
        self.admin = admin
        self._manager = manager

    def send(self, request: Any, node: int | None = None, timeout_ms: int | None = None) -> Any:
        """Send a request to a broker (None: any) and return its response. Raises kafka-python's errors."""
        return self._manager.run(
            lambda: self._manager.send(request, node_id=node, request_timeout_ms=timeout_ms),
        )

    def send_each(self, requests: Mapping[int, Any], timeouts_ms: Mapping[int, int]) -> dict[int, Any]:
        """Send to each of these brokers at once; returns each one's response, or the error instead of it.

        A broker has its time from here on, also where its connection is only being made: that may take kafka-python ten
        seconds, whatever time the request has.
        """
        begun = time.monotonic()

        async def ask() -> dict[int, Any]:
            found: dict[int, Any] = {}
            sent: dict[int, Any] = {}
            for node, request in requests.items():
                try:
                    sent[node] = self._manager.send(request, node_id=node, request_timeout_ms=timeouts_ms[node])
                except Exception as problem:  # no such broker, or its login was refused: the others are asked
                    found[node] = problem
            for node, answer in sent.items():
                left_ms = timeouts_ms[node] - (time.monotonic() - begun) * 1000
                try:
                    found[node] = await self._manager.wait_for(answer, max(left_ms, 1.0))
                except Exception as problem:  # also an answer that cannot be read
                    found[node] = problem
            return found

        made: dict[int, Any] = self._manager.run(ask)
        return made

    def refresh(self) -> None:
        """Start a refresh of the list of brokers; does not wait for it."""

        async def ask() -> None:
            self._manager.cluster.request_update()

        self._manager.run(ask)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id in the last Metadata response."""
        found: str | None = self._manager.cluster.cluster_id
        return found

    def offers(self, api_key: int) -> bool:
        """Whether the bootstrap broker offers that API."""
        return api_key in self._manager.broker_version_data.api_versions

    def close(self) -> None:
        self.admin.close()


def connect(settings: ClusterSettings, servers: Sequence[str], timeout_s: float) -> Connection:
    """Open kafka-python's admin client by the first server that answers.

    Raises ClusterUnreachable, and AccessRefused as soon as a login was refused and no server accepted it. Where no
    server's name resolves, that is final unless the settings wait for names; and so it is where none of them is a
    broker's listener for these settings.
    """
    with _noticed(servers, timeout_s):
        return _connected(settings, servers, timeout_s)


@contextmanager
def _noticed(servers: Sequence[str], timeout_s: float) -> Iterator[None]:
    """Say after a while what is waited for: a server that takes connections and is silent takes all of the time."""
    text = "no answer yet from %s: it is tried for %.0f s"
    notice = threading.Timer(NOTICE_S, log.warning, (text, ", ".join(servers), timeout_s))
    notice.daemon = True
    if timeout_s >= 2 * NOTICE_S:
        notice.start()
    try:
        yield
    finally:
        notice.cancel()


def _connected(settings: ClusterSettings, servers: Sequence[str], timeout_s: float) -> Connection:
    deadline = time.monotonic() + timeout_s
    failed: dict[str, Exception] = {}
    is_first = True
    while True:
        refused = False
        for server in [server for server in servers if not isinstance(failed.get(server), _Mistaken)]:
            left = max(deadline - time.monotonic(), 0.5)
            share = left if len(servers) == 1 else min(left, settings.request_timeout_s / 2)
            try:
                # kafka-python would spend all of its time on a server that refuses connections.
                host, _, port = server.rpartition(":")
                refusal = knock(host.strip("[]"), int(port), share) if host and port.isdecimal() else None
                if refusal is not None:
                    raise refusal
                return open_by(settings, server, share, hasty=is_first)
            except BadSettings:
                raise  # every server would be asked in the same way
            except NoToken as problem:
                raise AccessRefused(str(problem)) from None
            except Exception as problem:  # of any kind: the next server may answer
                refused = refused or is_refused_login(problem)
                failed[server] = _explained(settings, server, problem) if is_first else problem
        said = {server: plain(problem) for server, problem in failed.items()}
        if refused:
            # Another attempt would fail too, and may lock the user out.
            reasons = "; ".join(f"{server}: {text}" for server, text in said.items())
            raise AccessRefused(f"the login of {settings.user} is refused ({reasons})")
        nameless = not settings.waits_for_names and _all_are(failed, socket.gaierror)
        if nameless or _all_are(failed, _Mistaken) or time.monotonic() >= deadline:
            raise ClusterUnreachable("; ".join([f"no broker answered: {by_reason(said)}", *_advice(failed)]))
        time.sleep(_RETRY_PAUSE_S)
        is_first = False


class _Mistaken(Exception):
    """Another server listens there, or for another protocol."""


def _explained(settings: ClusterSettings, server: str, problem: Exception) -> Exception:
    """The same problem, or _Mistaken where something listens that will not answer as it is asked to."""
    if isinstance(problem, OSError) or is_refused_login(problem):
        return problem
    host, _, port = server.rpartition(":")
    found = mistake(settings, host.strip("[]"), int(port)) if host and port.isdecimal() else None
    return problem if found is None else _Mistaken(found)


def by_reason(said: Mapping[str, str]) -> str:
    """Server → why it does not answer, as text: servers with the same reason share it."""
    servers: dict[str, list[str]] = {}
    for server, reason in said.items():
        servers.setdefault(reason, []).append(server)
    return "; ".join(f"{', '.join(named)} ({reason})" for reason, named in servers.items())


def _advice(failed: Mapping[str, Exception]) -> list[str]:
    if _all_are(failed, _Mistaken):
        return []  # each has its own
    if _all_are(failed, socket.gaierror):
        return ["no name resolves: check the addresses, and DNS"]
    # Where nothing listens nobody has looked at a protocol or a password.
    if _all_are(failed, ConnectionRefusedError, socket.gaierror):
        return ["check that they run, and their addresses"]
    return ["check address, protocol and credentials"]


def _all_are(failed: Mapping[str, Exception], *kinds: type[Exception]) -> bool:
    return all(isinstance(problem, kinds) for problem in failed.values())


def knock(host: str, port: int, timeout_s: float) -> OSError | None:
    """Try a TCP connection; None if it succeeds."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError as problem:
        return problem
    except UnicodeError:  # an empty part of a name, or one that is too long: DNS is not even asked
        return socket.gaierror(socket.EAI_NONAME, "this is no name of a host")
    return None


def open_by(settings: ClusterSettings, server: str, timeout_s: float, *, hasty: bool = False) -> Connection:
    """Open the admin client by that server alone, with `hasty` only until a second connection is lost. Raises
    kafka-python's errors, with their causes."""
    request_s = settings.request_timeout_s
    return Connection(*open_admin(settings, server, request_timeout_s=request_s, timeout_s=timeout_s, hasty=hasty))
