"""The first sign of life of a broker: an answer to ApiVersions, which needs no login and no right; on plain sockets.

A client library reports a refused login and a missing answer both as a time-out. Recovery has to tell them apart.
"""

import socket
import ssl
import struct

from logyard.admin.recovery.witnesses import Wire
from logyard.admin.settings import ClusterSettings
from logyard.login import tls
from logyard.login.security import BadSettings

_CLIENT = b"logyard-admin"
# By which an answer tells its request.
API_VERSIONS_ID = 1


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
            return ask(secured(settings, plain, host)), where
        except TimeoutError:
            return Wire.SILENT, f"{where}: no answer within {timeout_s:g} s"
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as problem:  # which of them depends on OpenSSL
            return Wire.CLOSED, f"{where}: {problem}"
        except ssl.SSLError as problem:
            return Wire.REFUSES, f"{where}: TLS fails ({problem})"
        except BadSettings as problem:  # unreadable certificate files on this side say nothing of the broker
            return Wire.UNKNOWN, f"{where}: {problem}"
        except OSError as problem:  # a connection that was cut
            cut = isinstance(problem, ConnectionError)
            return (Wire.CLOSED if cut else Wire.UNKNOWN), f"{where}: {problem}"


def secured(settings: ClusterSettings, plain: socket.socket, host: str) -> socket.socket:
    """The same connection, with TLS if the protocol has it. Raises OSError (ssl.SSLError), BadSettings."""
    return tls.context(settings).wrap_socket(plain, server_hostname=host) if settings.uses_tls else plain


def api_versions() -> bytes:
    """ApiVersions, version 0: every broker since 0.10 answers it, on a SASL listener before the login too."""
    return struct.pack(">hhih", 18, 0, API_VERSIONS_ID, len(_CLIENT)) + _CLIENT


def ask(link: socket.socket) -> Wire:
    """Ask ApiVersions: ANSWERS if any bytes come back, CLOSED at the end of the stream. Raises OSError."""
    frame = api_versions()
    link.sendall(struct.pack(">i", len(frame)) + frame)
    return Wire.ANSWERS if link.recv(1) else Wire.CLOSED
