"""The first sign of life of a broker: an answer to ApiVersions, which needs no login and no right; on plain sockets.

A client library reports a refused login and a missing answer both as a time-out. Recovery has to tell them apart.
"""

import socket
import ssl
import struct

from logyard.admin.recovery.witnesses import Wire
from logyard.admin.settings import ClusterSettings

_CLIENT = b"logyard-admin"
# ApiVersions, version 0: every broker since 0.10 answers it, on a SASL listener before the login too.
_FRAME = struct.pack(">hhih", 18, 0, 1, len(_CLIENT)) + _CLIENT


def first_sign(settings: ClusterSettings, host: str, port: int, timeout_s: float) -> tuple[Wire, str]:
    """Connect, do the TLS handshake if the protocol has TLS, and ask ApiVersions.

    ANSWERS: some bytes came back, whatever they are. REFUSES: the broker is alive, and the TLS handshake fails.
    """
    where = f"{host}:{port}"
    try:
        plain = socket.create_connection((host, port), timeout=timeout_s)
    except ConnectionRefusedError as problem:
        return Wire.CLOSED, f"{where}: {problem}"
    except OSError as problem:
        return Wire.UNREACHABLE, f"{where}: {problem}"
    with plain:
        try:
            return _ask(settings, plain, host), where
        except TimeoutError:
            return Wire.SILENT, f"{where}: no answer within {timeout_s:g} s"
        except ssl.SSLEOFError as problem:
            return Wire.CLOSED, f"{where}: {problem}"
        except ssl.SSLError as problem:
            return Wire.REFUSES, f"{where}: TLS fails ({problem})"
        except OSError as problem:  # unreadable certificate files on this side, or a connection that was cut
            cut = isinstance(problem, ConnectionError)
            return (Wire.CLOSED if cut else Wire.UNKNOWN), f"{where}: {problem}"


def _ask(settings: ClusterSettings, plain: socket.socket, host: str) -> Wire:
    link = plain
    if settings.security_protocol in ("SSL", "SASL_SSL"):
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        context.check_hostname = settings.ssl_check_hostname
        if settings.ssl_certfile:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password)
        link = context.wrap_socket(plain, server_hostname=host)
    link.sendall(struct.pack(">i", len(_FRAME)) + _FRAME)
    return Wire.ANSWERS if link.recv(1) else Wire.CLOSED
