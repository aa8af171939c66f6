"""What `make fuzz` feeds: each target takes bytes and raises where the product would do something that it must not.

An exception that a module's documentation names is caught here; any other is a finding. run.py fuzzes, and
tests/properties/test_fuzz_corpus.py replays what was found.
"""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec
from logyard.broker.security.sasl import jaas
from logyard.broker.security.sasl.bearer_tokens import BearerToken, TokenRefused
from logyard.broker.security.sasl.gssapi import GssapiClient, GssapiServer, GssFailure
from logyard.broker.security.sasl.jwks_tokens import JwksTokens, TokenRules, parse_keys
from logyard.broker.security.sasl.kerberos_names import KerberosNames, NoLocalName
from logyard.broker.security.sasl.mechanism import SCRAM_SHA_256, LoginRefused
from logyard.broker.security.sasl.oauthbearer import OAuthBearerServer
from logyard.broker.security.sasl.plain import PlainServer
from logyard.broker.security.sasl.scram import ScramClient, ScramLookup, ScramServer
from logyard.broker.security.sasl.unsecured_jws import UnsecuredRules, UnsecuredTokens
from logyard.broker.server.logins.phase import AskVersions, Begin, LoginPhase, Refuse, RefuseRequest, Token
from logyard.broker.tls.distinguished_name import rfc2253
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.principal_rules import NoRuleApplies, PrincipalRules
from logyard.broker.tls.transport import TlsTransport
from logyard.broker.zk.digest_md5 import BadChallenge, DigestMd5
from logyard.broker.znodes import acls, delegation_tokens
from logyard.broker.znodes.scram_credentials import ScramCredential

PASSWORD = "wonder"
SEPARATOR = b"\n--\n"
"""Between the parts of an input that has several: tokens, frames, rules."""
CREDENTIAL = ScramCredential.of_password(SCRAM_SHA_256, PASSWORD, 4096, b"salt")


class Step(Protocol):
    """One side of an exchange."""

    def step(self, token: bytes) -> bytes | None: ...


def exchange(side: Step, data: bytes) -> None:
    """Feed the tokens of an input; a refusal ends it."""
    with suppress(LoginRefused):
        for token in data.split(SEPARATOR)[:6]:
            side.step(token)


def plain(data: bytes) -> None:
    server = PlainServer({"alice": PASSWORD, "é": "ü"}.get)
    server.proves(data)
    exchange(server, data)
    if server.identity is not None:
        assert (server.identity.name, PASSWORD in data.decode(errors="replace")) in (("alice", True), ("é", False))


def scram(data: bytes) -> None:
    lookup = ScramLookup({"alice": CREDENTIAL}.get, lambda _: None)
    server = ScramServer(SCRAM_SHA_256, lookup, lambda: "server")
    server.proves(data)
    exchange(server, data)
    assert server.identity is None or server.identity.name == "alice"


def scram_client(data: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD, "client")
    client.first()
    if b"i=" in data and any(len(number) > 5 for number in data.split(b"i=")[1:2]):
        return  # so many iterations only take time
    exchange(client, data)


def oauthbearer(data: bytes) -> None:
    rules = UnsecuredRules.from_options({"unsecuredValidatorRequiredScope": "read"})
    exchange(OAuthBearerServer(UnsecuredTokens(rules, lambda: 1_000_000)), data)
    with suppress(TokenRefused):
        UnsecuredTokens(rules, lambda: 1_000_000).validate(data.decode("latin-1"))


@cache
def _signed() -> JwksTokens:
    key = ec.derive_private_key(7, ec.SECP256R1()).public_key()
    keys = parse_keys(json.dumps({"keys": [{**json.loads(ECAlgorithm.to_jwk(key)), "kid": "k"}]}).encode())
    rules = TokenRules(("kafka",), "issuer", 30, "sub")
    return JwksTokens(rules, lambda: keys, lambda _: None)


def signed_tokens(data: bytes) -> None:
    found: BearerToken | None = None
    with suppress(TokenRefused):
        found = _signed().validate(data.decode("latin-1"))
    assert found is None, "a signature was made without the key"
    with suppress(ValueError):
        parse_keys(data)


class _Wrapped:
    """A context of GSSAPI that is complete after one token."""

    peer = "alice@REALM"

    def __init__(self) -> None:
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        self.is_complete = token[:1] != b"+"
        return token[1:2]

    def wrap(self, message: bytes) -> bytes:
        return message

    def unwrap(self, message: bytes) -> bytes:
        if message[:1] == b"!":
            raise GssFailure("no signature")
        return message


def gssapi(data: bytes) -> None:
    server = GssapiServer(_Wrapped, KerberosNames(["DEFAULT"], "REALM"))
    exchange(server, data)
    assert server.identity is None or server.identity.name == "alice"
    client = GssapiClient(_Wrapped)
    client.first()
    exchange(client, data)


def login_frames(data: bytes) -> None:
    """What comes before and during a log-in, and when a session is renewed."""
    for phase in (LoginPhase(["PLAIN", "GSSAPI"]), LoginPhase(["PLAIN"]), LoginPhase(["PLAIN"], "PLAIN")):
        with suppress(CorruptData):
            for frame in data.split(SEPARATOR)[:6]:
                match phase.take(memoryview(frame)):
                    case AskVersions():
                        phase.versions_answered(accepted=bool(frame[-1:] > b"\x20"))
                    case Begin():
                        pass
                    case Token(token):
                        phase.token_answer(token[:100], 1)
                        phase.refusal("refused")
                    case Refuse() | RefuseRequest():
                        break


class _Socket:
    """A transport that takes everything; a closed one takes nothing."""

    def __init__(self) -> None:
        self.closed = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        pass

    def writelines(self, pieces: Any) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class _Peer(asyncio.BufferedProtocol):
    """What is behind TLS: it takes what arrives, and nothing may arrive before a handshake."""

    def __init__(self) -> None:
        self.received = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(4096))

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes


class _Here(Handshakes):
    """Computes on the loop, so that the fuzzer sees what is run."""

    def compute(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except (ssl.SSLError, OSError) as error:
            future.set_exception(error)
        return future


@cache
def _tls() -> tuple[asyncio.AbstractEventLoop, _Here, ssl.SSLContext]:
    from tests.support.tls_listener import SERVER, load

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(context, SERVER)
    return asyncio.new_event_loop(), _Here(), context


def tls_records(data: bytes) -> None:
    """Bytes on a TLS port, in pieces whose size is the first byte."""
    loop, shakes, context = _tls()
    loop.run_until_complete(_tls_records(shakes, context, data))


async def _tls_records(shakes: Handshakes, context: ssl.SSLContext, data: bytes) -> None:
    peer, raw = _Peer(), _Socket()
    failures: list[str] = []
    new_ssl = partial(context.wrap_bio, server_side=True)
    transport: TlsTransport[str] = TlsTransport(peer, shakes, new_ssl, lambda _: "", lambda _: None, failures.append)
    transport.connection_made(raw)  # type: ignore[arg-type]  # the transport's twin
    size = max(1, data[0] if data else 1)
    for at in range(1, len(data), size):
        if raw.closed:
            break
        piece = data[at : at + size]
        transport.get_buffer(-1)[: len(piece)] = piece
        transport.buffer_updated(len(piece))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    if not raw.closed:
        transport.eof_received()
    transport.connection_lost(None)
    assert peer.received == 0, "records arrived before a handshake"
    assert len(failures) == 1, failures
    assert "\n" not in failures[0]
    assert shakes.waiting_count == 0


def jaas_texts(data: bytes) -> None:
    text = data.decode(errors="replace")
    for parse in (jaas.parse, jaas.parse_file):
        with suppress(jaas.BadJaas):
            assert parse(text) is not None


def acl_znodes(data: bytes) -> None:
    with suppress(CorruptData):
        entries = acls.decode(data)
        assert acls.decode(acls.encode(entries)) == entries
    for changes in (acls.LITERAL_CHANGES, acls.EXTENDED_CHANGES):
        with suppress(CorruptData):
            pattern = acls.decode_notification(data, f"{changes}/acl_changes_1")
            assert acls.decode_notification(acls.notification(pattern)[1], f"{changes}/x") == pattern


def token_znodes(data: bytes) -> None:
    with suppress(CorruptData):
        token = delegation_tokens.decode(data)
        assert delegation_tokens.decode(delegation_tokens.encode(token)) == token
    with suppress(CorruptData):
        delegation_tokens.decode_change(data)


def token_requests(data: bytes) -> None:
    """CreateDelegationToken to DescribeDelegationToken: the first byte chooses API and version."""
    if data:
        api_key, version = 38 + (data[0] & 3), min((data[0] >> 2) & 3, (3, 2, 2, 3)[data[0] & 3])
        with suppress(CorruptData):
            codec.decode_request(api_key, version, memoryview(data)[1:])


RULES = ("RULE:[1:$1](a.*)s/a/b/g", "RULE:[2:$2-$1](.*x)s/(.)-/$1/L", "RULE:[2:$0]/U", "DEFAULT")


def kerberos_names(data: bytes) -> None:
    """The first part is a principal, the others are rules (of the configuration: they are read, and not applied)."""
    principal, *rules = data.decode(errors="replace").split(SEPARATOR.decode())
    with suppress(NoLocalName):
        name = KerberosNames(RULES, "REALM").name_of(principal)
        assert name
        assert not set(name) & set("/@")
    with suppress(ValueError):
        KerberosNames(rules, "REALM")


SUBJECT_RULES = "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,RULE:^.*CN=([a-z]+).*$/$1/U,DEFAULT"


def subjects(data: bytes) -> None:
    """A certificate's subject (DER), and rules as text (of the configuration: they are read, and not applied)."""
    with suppress(ValueError, NoRuleApplies):
        assert PrincipalRules(SUBJECT_RULES).name_of(rfc2253(data)) is not None
    with suppress(ValueError):
        PrincipalRules(data.decode(errors="replace"))


def zookeeper_challenges(data: bytes) -> None:
    """What a ZooKeeper server answers in DIGEST-MD5."""
    first, _, last = data.partition(SEPARATOR)
    digest = DigestMd5("alice", PASSWORD, "00")
    with suppress(BadChallenge):
        digest.respond(first)
    proved = False
    with suppress(BadChallenge):
        digest.check(last)
        proved = True
    assert not proved, "the server has proved a password that it does not know"


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        plain,
        scram,
        scram_client,
        oauthbearer,
        signed_tokens,
        gssapi,
        login_frames,
        tls_records,
        jaas_texts,
        acl_znodes,
        token_znodes,
        token_requests,
        kerberos_names,
        subjects,
        zookeeper_challenges,
    )
}
