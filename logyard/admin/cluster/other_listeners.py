"""What listens at an address where no broker answers as it is asked to: a listener for another protocol, or ZooKeeper.

Clients only say that the connection is lost, again and again. Each look has a plain connection of its own.
"""

import socket
import ssl
import struct
from contextlib import suppress

from logyard.admin.cluster.reachability import try_server
from logyard.admin.cluster.sign_of_life import API_VERSIONS_ID, api_versions, secured
from logyard.admin.settings import ClusterSettings
from logyard.login.security import BadSettings

# How long each look may take.
_PATIENCE_S = 1.5
# Metadata, version 1, of no topic: the first request of a client that need not log in.
_METADATA = struct.pack(">hhihi", 3, 1, API_VERSIONS_ID, -1, 0)
# What a ZooKeeper answers to the word, also one that does not carry it out. TLS takes five bytes for a header, and
# hangs up.
_WORD, _ZOOKEEPER = b"srvr\n", (b"Zookeeper version", b"This ZooKeeper", b"srvr is not executed")


def mistake(settings: ClusterSettings, host: str, port: int) -> str | None:
    """Return what is wrong with the settings for this address, if that can be told; None: nothing is known."""
    if _is_zookeeper(host, port):
        return "it is a ZooKeeper: the port of a broker is expected"
    if settings.uses_tls:
        if _answers(host, port):
            return f"it speaks Kafka's protocol without TLS: {_other(settings, tls=False)}"
        found = try_server(settings, f"{host}:{port}", _PATIENCE_S)
        if found.step == "tls" and "certificate" in found.detail:
            return found.detail
    elif _speaks_tls(host, port):
        return f"it speaks TLS: {_other(settings, tls=True)}"
    is_open = _is_open(settings, host, port)
    if is_open is False:  # or it was stopped between the two requests: then nothing answers now
        is_open = _is_open(settings, host, port)
    if is_open is None or is_open is not settings.uses_sasl:
        return None
    said = "it knows no log-ins" if is_open else "it answers those who log in"
    return f"{said}: {_other(settings, sasl=not is_open)}"


def _other(settings: ClusterSettings, *, tls: bool | None = None, sasl: bool | None = None) -> str:
    """Name the protocol that differs from that of the settings in this."""
    has_tls = settings.uses_tls if tls is None else tls
    has_sasl = settings.uses_sasl if sasl is None else sasl
    other = f"{'SASL_' if has_sasl else ''}{'SSL' if has_tls else 'PLAINTEXT'}"
    return f"its security protocol is {other}, not {settings.security_protocol}"


def _is_zookeeper(host: str, port: int) -> bool:
    said = b""
    with suppress(OSError), _link(host, port) as link:
        link.sendall(_WORD)
        while len(said) < len(_ZOOKEEPER[0]) and (more := link.recv(64)):
            said += more
    return said.startswith(_ZOOKEEPER)


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with _link(host, port) as link:
            context.wrap_socket(link).close()
    except ssl.SSLError as problem:
        return "ALERT" in str(problem.reason)  # it refuses this client, by TLS
    except OSError:
        return False
    return True


def _answers(host: str, port: int) -> bool:
    with suppress(OSError), _link(host, port) as link:
        return _asked(link, api_versions())
    return False


def _is_open(settings: ClusterSettings, host: str, port: int) -> bool | None:
    """Whether it answers who has not logged in; False: it tells its versions, and hangs up at the next request."""
    try:
        with _link(host, port) as plain, secured(settings, plain, host) as link:
            if not _asked(link, api_versions()):
                return None
            try:
                return _asked(link, _METADATA)
            except ConnectionError:
                return False
    except (OSError, BadSettings):
        return None


def _asked(link: socket.socket, request: bytes) -> bool:
    """Send a request; returns whether its answer comes, False at the end of the stream. Raises OSError."""
    link.sendall(struct.pack(">i", len(request)) + request)
    answer = _read(link, 8)
    if len(answer) < 8:
        return False
    size, answers = struct.unpack(">ii", answer)
    if size < 4 or answers != API_VERSIONS_ID:
        raise OSError("no answer of Kafka's protocol")
    _read(link, size - 4)
    return True


def _read(link: socket.socket, size: int) -> bytes:
    """Read so many bytes, or those before the end of the stream; of very many, the first."""
    found = b""
    while len(found) < min(size, 1 << 20) and (more := link.recv(min(size - len(found), 1 << 16))):
        found += more
    return found


def _link(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), timeout=_PATIENCE_S)
