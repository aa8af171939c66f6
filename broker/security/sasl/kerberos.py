"""Kerberos by the library `gssapi` (MIT's), which only this module imports: the extra `kerberos`.

What is made here may read files and ask a KDC, which may take seconds: use it in a thread. Which KDC, and how host
names are made canonical, says krb5.conf (KRB5_CONFIG).
"""

import re
from dataclasses import dataclass
from typing import Any

from logyard.broker.security.sasl.gssapi import GssFailure, SecurityContext
from logyard.broker.security.sasl.jaas import LoginModule

INSTALL = (
    "GSSAPI needs the package gssapi: pip install 'logyard[kerberos]' (it needs MIT Kerberos: Debian's libkrb5-dev)"
)
EXPECTED = 'Krb5LoginModule required useKeyTab=true storeKey=true keyTab="…" principal="…"; is expected'
_CODES = re.compile(r"(?:Major|Minor) \(\d+\): ")
SERVICE_NAME = "sasl.kerberos.service.name"


@dataclass(frozen=True, slots=True)
class Keytab:
    """Whose key is in which file."""

    principal: str
    path: str


def keytab_of(module: LoginModule) -> Keytab:
    """Return what a Krb5LoginModule says. Raises ValueError."""
    options = module.options
    if options.get("useKeyTab", "false").lower() != "true" or not options.get("keyTab") or not options.get("principal"):
        raise ValueError(EXPECTED)
    return Keytab(options["principal"], options["keyTab"].removeprefix("FILE:"))


def service_name(module: LoginModule, configured: str | None) -> str:
    """Return the brokers' service name, of sasl.kerberos.service.name or the module's option. Raises ValueError."""
    own = module.options.get("serviceName")
    if own and configured and own != configured:
        raise ValueError(f"{SERVICE_NAME} is {configured}, and serviceName is {own}: they have to be equal")
    found = configured or own
    if not found:
        raise ValueError(
            f"{SERVICE_NAME}: not set; it is the first part of the brokers' principals, kafka for instance"
        )
    return found


class Kerberos:
    """One principal, as a server and as a client."""

    def __init__(self, keytab: Keytab) -> None:
        """Raise ValueError if the library is missing."""
        try:
            import gssapi
        except (ImportError, OSError):
            raise ValueError(INSTALL) from None
        self._gss: Any = gssapi
        self._mechanism = self._gss.MechType.kerberos
        self._keytab = keytab

    def check(self) -> None:
        """Raise ValueError unless the keytab has a key of the principal."""
        try:
            self._credentials("accept", {"keytab": self._keytab.path})
        except self._gss.exceptions.GSSError as error:
            raise ValueError(f"{self._keytab.principal} in {self._keytab.path}: {_reason(error)}") from None

    def default_realm(self) -> str:
        """Return krb5.conf's default realm, "" if there is none."""
        try:
            name = self._gss.Name("nobody", self._gss.NameType.kerberos_principal).canonicalize(self._mechanism)
        except self._gss.exceptions.GSSError:
            return ""
        return str(name).rpartition("@")[2]

    def acceptor(self) -> SecurityContext:
        """Begin the server's side of a log-in. Raises GssFailure."""
        try:
            found = self._credentials("accept", {"keytab": self._keytab.path})
            return _Context(self._gss, self._gss.SecurityContext(creds=found, usage="accept"))
        except self._gss.exceptions.GSSError as error:
            raise GssFailure(_reason(error)) from None

    def initiator(self, service: str, host: str) -> SecurityContext:
        """Begin the client's side of a log-in to `service` at `host`. Raises GssFailure.

        Tickets are kept in memory, and got again by the keytab before they end.
        """
        flags = self._gss.RequirementFlag
        # By the keytab too: the same principal has other keys, and so other tickets, in another realm's keytab.
        cache = f"MEMORY:logyard-{self._keytab.principal}-{self._keytab.path}"
        try:
            found = self._credentials("initiate", {"client_keytab": self._keytab.path, "ccache": cache})
            name = self._gss.Name(f"{service}@{host}", self._gss.NameType.hostbased_service)
            context = self._gss.SecurityContext(
                name=name,
                creds=found,
                usage="initiate",
                mech=self._mechanism,
                flags=flags.mutual_authentication | flags.integrity,
            )
        except self._gss.exceptions.GSSError as error:
            raise GssFailure(_reason(error)) from None
        return _Context(self._gss, context, must_prove=flags.mutual_authentication)

    def _credentials(self, usage: str, store: dict[str, str]) -> Any:
        name = self._gss.Name(self._keytab.principal, self._gss.NameType.kerberos_principal)
        return self._gss.Credentials(name=name, usage=usage, mechs=[self._mechanism], store=store)


class _Context:
    """A security context of the library; `must_prove` is the flag of mutual authentication, for a client."""

    def __init__(self, gss: Any, context: Any, must_prove: Any = None) -> None:
        self._error = gss.exceptions.GSSError
        self._context = context
        # Else a refused token gives a token, and whatever is asked of the context next raises the error.
        context.__DEFER_STEP_ERRORS__ = False
        self._must_prove = must_prove

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        try:
            answer = self._context.step(token or None) or b""
            if self._must_prove is not None and self.is_complete and not self._context.actual_flags & self._must_prove:
                raise GssFailure("the server has not proved who it is")
        except self._error as error:
            raise GssFailure(_reason(error)) from None
        return bytes(answer)

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._error as error:
            raise GssFailure(_reason(error)) from None

    def unwrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(message).message)
        except self._error as error:
            raise GssFailure(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Return what the library says, in one line, without its numbers."""
    return _CODES.sub("", " ".join(str(error).split()))
