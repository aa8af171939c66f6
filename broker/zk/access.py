"""How a client of ZooKeeper connects, and who it is there; values only."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from logyard.broker.security.sasl.mechanism import ClientExchange


@dataclass(frozen=True, slots=True)
class Login:
    """A user of SASL DIGEST-MD5. `source` says where the password was configured, for error messages."""

    username: str
    password: str = field(repr=False)
    source: str = ""


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """A principal of SASL GSSAPI; `begin` starts its log-in at a host. `source` is as in `Login`."""

    username: str
    begin: Callable[[str], ClientExchange] = field(repr=False)
    source: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """TLS or none, and the identities that ZooKeeper sees.

    `tls` makes the context of a new connection from the files as they are now; it may raise OSError, ValueError or
    LogyardError. `has_certificate`: the context presents a certificate, whose subject ZooKeeper takes as an identity.
    """

    tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
    login: Login | KerberosLogin | None = None
    has_certificate: bool = False

    @property
    def has_identity(self) -> bool:
        """Whether znodes can be created that belong to this client (zookeeper.set.acl)."""
        return self.login is not None or (self.tls is not None and self.has_certificate)


ANYBODY = Access()
"""Plain text, nobody in particular."""
