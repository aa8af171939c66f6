"""Finds which step of connecting to a broker fails: address, TLS, protocol or log-in.

Each step is tried separately, because a client's own error says only that nobody answered. The result is one line
that begins with the step and says what to check.
"""

import socket
import ssl
from dataclasses import dataclass

from logyard.admin.cluster.sign_of_life import ask, secured
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.login.security import BadSettings


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The result for one server: `step` is the one that failed (name, port, tls), or None."""

    server: str
    step: str | None
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.server}: {self.detail}" if self.detail else self.server


# In the order in which they are taken.
_NAMES = {"name": "Address", "port": "Address", "tls": "TLS"}
_ADVICE = {
    "name": "the name does not resolve",
    "port": "nothing listens there, or a firewall blocks it",
    "tls": "TLS fails",
}


def try_server(settings: ClusterSettings, server: str, timeout_s: float) -> Obstacle:
    """Resolve the name, connect, and do the TLS handshake if the protocol has TLS."""
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal():
        return Obstacle(server, "name", "host:port is expected")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as problem:
        return Obstacle(server, "name", f"the name does not resolve ({problem})")
    refusal = ""
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as plain:
                plain.settimeout(timeout_s)
                plain.connect(address)
                return _handshake(settings, server, host, plain)
        except OSError as problem:
            refusal = str(problem) or type(problem).__name__
    return Obstacle(server, "port", f"{_ADVICE['port']} ({refusal})")


def _handshake(settings: ClusterSettings, server: str, host: str, plain: socket.socket) -> Obstacle:
    if not settings.uses_tls:
        return Obstacle(server, None)
    try:
        link = secured(settings, plain, host)
    except BadSettings as problem:
        return Obstacle(server, "tls", f"{_ADVICE['tls']}: {problem}")
    except ssl.SSLCertVerificationError as problem:
        return Obstacle(server, "tls", f"its certificate is not trusted ({problem.verify_message}): see the CA file")
    except (ssl.SSLError, OSError) as problem:
        return Obstacle(server, "tls", f"{_ADVICE['tls']} ({problem}): is it a TLS listener, are the files right?")
    try:
        # With TLS 1.3 a broker asks for the client's certificate after the handshake: only its answer shows that.
        with link:
            ask(link)
    except ssl.SSLError as problem:
        if "CERTIFICATE" in str(problem.reason):
            shown = "ours is refused" if settings.ssl_certfile or settings.ssl_certificate else "the client has none"
            return Obstacle(server, "tls", f"it asks for the client's certificate, and {shown} ({problem.reason})")
    except OSError:
        pass  # TLS works; what is not answered is for the client to say
    return Obstacle(server, None)


def why_unreachable(settings: ClusterSettings, problem: ClusterUnreachable, timeout_s: float = 3.0) -> str:
    """Explain why no broker answered: the first failing step for each server, or else the client's error.

    The line begins with `Address:`, `TLS:`, `Login:` or `Protocol:`; of several servers' steps the furthest counts.
    """
    found = [try_server(settings, server, timeout_s) for server in settings.bootstrap]
    failed = {obstacle.step for obstacle in found}
    if None not in failed:
        furthest = next(name for step, name in reversed(_NAMES.items()) if step in failed)
        return f"{furthest}: {'; '.join(str(obstacle) for obstacle in found)}"
    open_servers = ", ".join(obstacle.server for obstacle in found if obstacle.step is None)
    said = str(problem)
    if "token endpoint" in said or "sasl_mechanism" in said:
        return f"Login: {said}"  # nobody was asked yet
    if settings.uses_sasl and _names_credentials(said):
        return f"Login: {open_servers}: user {settings.user} or its password is refused by {settings.sasl_mechanism}"
    reached = "connected" if settings.security_protocol.endswith("PLAINTEXT") else "TLS works"
    expected = settings.security_protocol
    if settings.sasl_mechanism and expected.startswith("SASL"):
        expected += f" with {settings.sasl_mechanism}"
    return (
        f"Protocol: {open_servers}: {reached}, but no answer as {expected}: is that this listener's protocol? ({said})"
    )


def _names_credentials(text: str) -> bool:
    lowered = text.lower()
    return any(word in lowered for word in ("authentication", "credential", "sasl", "log-in is refused"))
