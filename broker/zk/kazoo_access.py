"""Has kazoo connect by TLS and log in by SASL as Kafka's client does.

kazoo's own TLS checks no host name and trusts the system's authorities beside those that are configured; and it waits
for data at the socket while the TLS layer has some. Here the context is ours. kazoo's own SASL needs a library that is
no longer maintained, and takes a connection that breaks in the exchange for a wrong password.
"""

import logging
import secrets
import ssl
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.serialization import SASL
from kazoo.protocol.states import KeeperState

from logyard.broker.errors import LogyardError
from logyard.broker.security.sasl.mechanism import ClientExchange, LoginRefused
from logyard.broker.zk.access import Access, KerberosLogin, Login
from logyard.broker.zk.digest_md5 import BadChallenge, DigestMd5

_AUTH_FAILED = -115
LOGIN_POLL_S = 0.05
TOKENS_MAX = 16


# At DEBUG kazoo logs what it sends, including secrets in configs.
_log = logging.getLogger("logyard.zookeeper.kazoo")
_log.setLevel(logging.WARNING)
_silent = logging.getLogger("logyard.zookeeper.silent")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

# Of a client that was connected and has not logged in: kazoo goes from the first to the second at once.
_REFUSED = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)

# kazoo's changes of state, and what it says when it is stopped.
_SAYS_NOTHING = ("Transition to CONNECTING", "within the connection retry policy")

# What kazoo says of an address where nobody listens, of one that is none, and where somebody listens and is silent.
_NO_SOCKET, _NO_NAME = "Connection dropped: socket connection error: ", "Cannot resolve "
_NO_ANSWER = "Connection time-out"


if TYPE_CHECKING:
    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    _LoggerAdapter = logging.LoggerAdapter  # takes no type before Python 3.11


class ConnectionLog(_LoggerAdapter):
    """kazoo's log; attempts to connect fail many times for one reason, which is written once until one succeeds.

    `problem` is the last reason, "" while there is a connection.
    """

    def __init__(self, logger: logging.Logger = _log) -> None:
        super().__init__(logger, {})
        self._said: set[str] = set()
        self.problem = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level < logging.WARNING or any(words in str(msg) for words in _SAYS_NOTHING):
            return
        refused = args[0] if args and isinstance(args[0], AuthFailedError) else None
        line = str(refused) if refused is not None else str(msg) % args
        self.problem = line
        if line not in self._said or level > logging.WARNING:
            self._said.add(line)
            super().log(level, "%s", line, **kwargs)

    def forget(self) -> None:
        self._said.clear()
        self.problem = ""

    def reason(self, access: Access) -> str:
        """Return why there is no connection, and what to check."""
        if not self.problem:
            return "check its address"
        if self.problem.startswith(_NO_SOCKET):
            return f"{self.problem.removeprefix(_NO_SOCKET).lower()}; check that it runs, and its address"
        if self.problem.startswith(_NO_NAME):
            return f"{self.problem}; check its address"
        if self.problem.startswith(_NO_ANSWER):
            return f"{self.problem}; is this the port that it listens on for clients?"
        if self.problem.endswith("connection broken") and access.tls is None:
            return f"{self.problem}; if this is its TLS port, set zookeeper.ssl.client.enable"
        return self.problem


class AccessHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threading handler whose connections are made by `access`."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._tls = access.tls

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **options: Any) -> Any:
        """Connect; with TLS also shake hands, within kazoo's timeout. Raises ConnectionDropped with the reason."""
        plain = super().create_connection(address, timeout=options.get("timeout"))
        if self._tls is None:
            return plain
        try:
            return self._tls().wrap_socket(plain, server_hostname=hostname)
        except (OSError, ValueError, LogyardError) as problem:
            plain.close()
            raise ConnectionDropped(f"no TLS with ZooKeeper at {hostname}:{address[1]}: {explained(problem)}") from None

    def select(self, readable: Any, writable: Any, errors: Any, timeout: float | None = None) -> Any:
        """As kazoo's, but a socket is readable too if its TLS layer has decrypted more than was read."""
        waiting = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        ready = super().select(readable, writable, errors, 0 if waiting else timeout)
        if not waiting:
            return ready
        return [*ready[0], *(one for one in waiting if one not in ready[0])], ready[1], ready[2]


class NoConnection(LogyardError):
    """ZooKeeper does not answer, or refuses the log-in; the text is one line with the reason."""


def started_client(hosts: str, access: Access, timeout_s: float) -> KazooClient:
    """Return a client that is connected and logged in, for code that waits for answers; `hosts` may have a chroot.

    It logs nothing. Raises NoConnection after `timeout_s` seconds, at once if the log-in is refused.
    """
    log, ready = ConnectionLog(_silent), threading.Event()
    client = KazooClient(hosts=hosts, timeout=timeout_s, handler=AccessHandler(access), logger=log)
    if access.login is None:
        ready.set()
    else:
        log_in_with(client, access.login, ready.set)
    deadline = time.monotonic() + timeout_s
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing chroot, which callers find out
            client.start(timeout=timeout_s)
        while not ready.wait(LOGIN_POLL_S):
            if client.client_state in _REFUSED or time.monotonic() > deadline:
                raise AuthFailedError
    except (KazooException, KazooTimeoutError, OSError) as problem:
        client.stop()
        client.close()
        refused = isinstance(problem, AuthFailedError)
        said = f"ZooKeeper at {hosts} refuses" if refused else f"no ZooKeeper answers at {hosts}"
        raise NoConnection(f"{said}: {log.reason(access)}") from None
    return client


def explained(problem: Exception) -> str:
    """Return what went wrong in a handshake, and which setting is concerned."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        hint = (
            "the server's certificate must be for the name in zookeeper.connect, and by an authority in the trust store"
        )
        return f"{problem.verify_message.rstrip('.')}: {hint}"
    if isinstance(problem, TimeoutError):
        return "it does not answer the handshake: is this its TLS port (secureClientPort)?"
    # Which of the two an end is depends on OpenSSL, and on Python.
    if isinstance(problem, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError):
        return "it ends the handshake: is this its TLS port (secureClientPort), and does it trust our certificate?"
    if isinstance(problem, ssl.SSLError):
        return problem.reason or str(problem)
    return str(problem)


def log_in_with(client: KazooClient, login: Login | KerberosLogin, logged_in: Callable[[], None]) -> None:
    """Have each connection of a client that is not started log in before its first request.

    `logged_in()` is called in the connection thread after each log-in: kazoo tells its listeners CONNECTED before it.
    """
    connection = client._connection

    def authenticate(host: str, timeout: float) -> None:
        asked = _Asked(connection, login, timeout)
        if isinstance(login, KerberosLogin):
            _by_kerberos(asked, login.begin(host))
        else:
            _by_digest(asked, login)
        logged_in()

    connection.sasl_options = {}
    connection._authenticate_with_sasl = authenticate


class _Asked:
    """Sends the tokens of one log-in."""

    def __init__(self, connection: Any, login: Login | KerberosLogin, timeout: float) -> None:
        self._connection, self._login, self._timeout = connection, login, timeout
        self._xid = 0

    def __call__(self, token: bytes) -> bytes:
        """Return the answer to a token. Raises AuthFailedError (refused), ConnectionDropped (it broke)."""
        self._xid += 1
        self._connection._submit(SASL(token), self._timeout, self._xid)
        header, buffer, offset = self._connection._read_header(self._timeout)
        if header.err == _AUTH_FAILED:
            raise AuthFailedError(refusal(self._login))
        if header.xid != self._xid or header.err:
            raise ConnectionDropped(f"ZooKeeper answers a log-in with error {header.err}")
        challenge, _ = SASL.deserialize(buffer, offset)
        return challenge or b""


def _by_digest(ask: _Asked, login: Login) -> None:
    """Log in by DIGEST-MD5. Raises as `ask`; ConnectionDropped if it is no ZooKeeper."""
    digest = DigestMd5(login.username, login.password, secrets.token_hex(16))
    try:
        digest.check(ask(digest.respond(ask(b""))))
    except BadChallenge as problem:
        raise ConnectionDropped(f"ZooKeeper's log-in cannot be followed: {problem}") from None


def _by_kerberos(ask: _Asked, exchange: ClientExchange) -> None:
    """Log in by GSSAPI. Raises as `ask`; ConnectionDropped if there is no ticket."""
    try:
        token: bytes | None = exchange.first()
        for _ in range(TOKENS_MAX):
            if token is None:
                return
            token = exchange.step(ask(token))
    except LoginRefused as problem:
        raise ConnectionDropped(f"no log-in at ZooKeeper by Kerberos: {problem}") from None
    raise ConnectionDropped("ZooKeeper's log-in does not end")


def refusal(login: Login | KerberosLogin) -> str:
    """Return the line for a log-in that ZooKeeper refuses."""
    where = f" in {login.source}" if login.source else ""
    what = "keytab" if isinstance(login, KerberosLogin) else "password"
    return f"ZooKeeper refuses the log-in of {login.username!r}: check its {what}{where}, and the server's users"
