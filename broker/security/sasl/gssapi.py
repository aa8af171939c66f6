"""GSSAPI (RFC 4752): Kerberos logs the two sides in; then they agree that what follows is not wrapped.

The server offers, and the client takes, no security layer (`auth`), as in Kafka (facts §18.1). An authorization id that
the client sends is not looked at: who has logged in is the principal of its ticket.
"""

from collections.abc import Callable
from typing import Protocol

from logyard.broker.security.sasl.kerberos_names import KerberosNames, NoLocalName
from logyard.broker.security.sasl.mechanism import Identity, LoginRefused

NO_LAYER = 1
# The longest wrapped message that this side takes; of no meaning without a layer, but Java sends it and wants it.
MESSAGE_MAX = (65536).to_bytes(3, "big")


class GssFailure(Exception):
    """A token is refused, or none can be made; the text is Kerberos' reason, and has no secret."""


class SecurityContext(Protocol):
    """One side of a Kerberos log-in. Every method may block, and raises GssFailure."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def peer(self) -> str:
        """The other side's principal, once the context is complete."""
        ...

    def step(self, token: bytes) -> bytes:
        """Take the other side's token (the initiator begins with an empty one); return the next, empty if none."""
        ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...


NewContext = Callable[[], SecurityContext]


class GssapiServer:
    """The server's side: the tokens of Kerberos, its offer of security layers, the client's choice."""

    # Reads the keytab, and writes into the replay cache.
    is_slow = True

    def __init__(self, new_context: NewContext, names: KerberosNames) -> None:
        self._new_context = new_context
        self._names = names
        self._context: SecurityContext | None = None
        self._has_offered = False
        self.claimed: str | None = None
        self.identity: Identity | None = None

    def proves(self, token: bytes) -> str | None:
        return None  # nobody guesses a ticket

    def step(self, token: bytes) -> bytes:
        try:
            return self._step(token)
        except GssFailure as failure:
            raise LoginRefused(str(failure)) from None

    def _step(self, token: bytes) -> bytes:
        context = self._context
        if context is None:
            context = self._context = self._new_context()
        if not context.is_complete:
            return self._accept(context, token)
        if not self._has_offered:
            if token:
                raise LoginRefused("the client sends a token where none is left")
            return self._offer(context)
        choice = context.unwrap(token)
        if len(choice) < 4 or choice[0] != NO_LAYER:
            raise LoginRefused("the client chooses a security layer, and none is offered")
        try:
            self.identity = Identity(self._names.name_of(context.peer))
        except NoLocalName as problem:
            raise LoginRefused(str(problem)) from None
        return b""

    def _accept(self, context: SecurityContext, token: bytes) -> bytes:
        answer = context.step(token)
        if not context.is_complete:
            return answer
        self.claimed = context.peer
        return answer or self._offer(context)

    def _offer(self, context: SecurityContext) -> bytes:
        self._has_offered = True
        return context.wrap(bytes([NO_LAYER]) + MESSAGE_MAX)


class GssapiClient:
    """The client's side."""

    def __init__(self, new_context: NewContext) -> None:
        self._new_context = new_context
        self._context: SecurityContext | None = None
        self._has_chosen = False
        self.is_done = False

    def first(self) -> bytes:
        """Return the first token; this may ask the KDC. Raises LoginRefused."""
        try:
            self._context = self._new_context()
            return self._context.step(b"")
        except GssFailure as failure:
            raise LoginRefused(str(failure)) from None

    def step(self, token: bytes) -> bytes | None:
        assert self._context is not None, "first() comes first"
        if self._has_chosen:
            self.is_done = True
            return None
        try:
            return self._step(self._context, token)
        except GssFailure as failure:
            raise LoginRefused(str(failure)) from None

    def _step(self, context: SecurityContext, token: bytes) -> bytes:
        if not context.is_complete:
            return context.step(token)
        offer = context.unwrap(token)
        if len(offer) != 4 or not offer[0] & NO_LAYER:
            raise LoginRefused("the server insists on a security layer, which Kafka does not have")
        self._has_chosen = True
        return context.wrap(bytes([NO_LAYER]) + MESSAGE_MAX)
