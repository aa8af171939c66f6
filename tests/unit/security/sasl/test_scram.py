"""SCRAM: the vectors of RFC 5802's successor, both sides against each other, and what Kafka refuses."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.security.sasl import scram_messages as messages
from logyard.broker.security.sasl.mechanism import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Identity,
    LoginRefused,
)
from logyard.broker.security.sasl.scram import ScramClient, ScramLookup, ScramServer, TokenCredential
from logyard.broker.znodes.scram_credentials import ScramCredential

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
# RFC 7677, section 3.
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

CREDENTIAL = ScramCredential.of_password(SCRAM_SHA_256, "pencil", 4096, SALT)


def lookup(of_token: Callable[[str], TokenCredential | None] = lambda _: None, **users: ScramCredential) -> ScramLookup:
    return ScramLookup(users.get, of_token)


def server(mechanism: str = SCRAM_SHA_256, nonce: str = "xyz", found: ScramLookup | None = None) -> ScramServer:
    return ScramServer(mechanism, found or lookup(user=CREDENTIAL), lambda: nonce)


def test_the_rfcs_exchange() -> None:
    ours = server(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == CLIENT_FIRST
    assert ours.step(CLIENT_FIRST) == SERVER_FIRST
    assert ours.identity is None
    assert client.step(SERVER_FIRST) == CLIENT_FINAL
    assert ours.proves(CLIENT_FINAL) == "user"
    assert ours.step(CLIENT_FINAL) == SERVER_FINAL
    assert client.step(SERVER_FINAL) is None
    assert client.is_done
    assert ours.identity == Identity("user")


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
@pytest.mark.parametrize("user", ["user", "a=b,c", "=2C=3D", "with space", "O=x, CN=y"])
def test_both_sides_agree(mechanism: str, user: str) -> None:
    credential = ScramCredential.of_password(mechanism, "pässword", 4096, b"salt")
    ours = ScramServer(mechanism, ScramLookup({user: credential}.get, lambda _: None), lambda: "s")
    client = ScramClient(mechanism, user, "pässword", "c")
    final = client.step(ours.step(client.first()))
    assert final is not None
    assert client.step(ours.step(final)) is None
    assert client.is_done
    assert ours.identity == Identity(user)


def test_a_token_is_another_kind_of_user() -> None:
    found = lookup(lambda token_id: TokenCredential(CREDENTIAL, "owner", 99) if token_id == "id" else None)
    client = ScramClient(SCRAM_SHA_256, "id", "pencil", "c", (("tokenauth", "true"),))
    ours = server(found=found)
    final = client.step(ours.step(client.first()))
    assert final is not None
    client.step(ours.step(final))
    assert ours.identity == Identity("owner", 99, is_token=True)
    for first in (b"n,,n=id,r=c", b"n,,n=id,r=c,tokenauth=false", b"n,,n=other,r=c,tokenauth=true"):
        with pytest.raises(LoginRefused):
            server(found=found).step(first)
    # A user's password is of no use where a token is asked for.
    with pytest.raises(LoginRefused, match="no such delegation token"):
        server().step(b"n,,n=user,r=c,tokenauth=true")


@pytest.mark.parametrize(("first", "reason"), [
    (b"", "not a SCRAM message"),
    (b"n,,n=user", "not a SCRAM message"),
    (b"n,,n=,r=c", "not a SCRAM message"),
    (b"y,,n=user,r=c", "not a SCRAM message"),
    (b"p=tls-unique,,n=user,r=c", "not a SCRAM message"),
    (b"n,,n=us=er,r=c", "not a SCRAM message"),
    (b"n,,n=us=2cer,r=c", "not a SCRAM message"),
    (b"n,,n=\xc3\xbcser,r=c", "not a SCRAM message"),
    (b"n,,n=user,r=c,d", "not a SCRAM message"),
    (b"n,,n=nobody,r=c", "no such user"),
    (b"n,a=other,n=user,r=c", "different from username"),
])  # fmt: skip
def test_first_messages_that_are_refused(first: bytes, reason: str) -> None:
    with pytest.raises(LoginRefused, match=reason) as caught:
        server().step(first)
    # Only this reason tells the client nothing that it does not know.
    assert (caught.value.told is None) == ("authorization" not in str(caught.value))


def test_few_iterations_are_refused() -> None:
    weak = ScramCredential.of_password(SCRAM_SHA_256, "pencil", 4095, SALT)
    with pytest.raises(LoginRefused, match="4095 iterations"):
        server(found=lookup(user=weak)).step(CLIENT_FIRST)


@pytest.mark.parametrize("first", [
    b"n,a=user,n=user,r=c", b"n,,m=reserved,n=user,r=c", b"n,,n=user,r=c,unknown=1,other=a=b",
])  # fmt: skip
def test_what_kafka_ignores_is_signed_all_the_same(first: bytes) -> None:
    ours = server()
    answer = ours.step(first)
    bare = first.split(b",", 2)[2]
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", "c")
    proven = client.step(answer)
    assert proven is not None
    # This client signs `n=user,r=c`: the proof fits only where the server signs the same.
    if bare == b"n=user,r=c":
        ours.step(proven)
        assert ours.identity == Identity("user")
    else:
        with pytest.raises(LoginRefused):
            ours.step(proven)


@pytest.mark.parametrize(
    ("nonce", "is_let_in"), [("cs", True), ("ccs", True), ("cs!", False), ("c", False), ("xcs", True)]
)
def test_the_last_nonce_ends_with_the_servers(nonce: str, is_let_in: bool) -> None:
    """librdkafka before 2.6.1 has its own nonce in front twice; Kafka 3.9 lets it in."""
    ours = server(nonce="s")
    theirs = ours.step(b"n,,n=user,r=c").decode()
    salt, iterations = theirs.split(",s=")[1].split(",i=")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", base64.b64decode(salt), int(iterations))
    key, unsigned = hmac.digest(salted, b"Client Key", "sha256"), f"c=biws,r={nonce}"
    signed = hmac.digest(hashlib.sha256(key).digest(), f"n=user,r=c,{theirs},{unsigned}".encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signed, strict=True))).decode()
    with nullcontext() if is_let_in else pytest.raises(LoginRefused, match="nonce"):
        ours.step(f"{unsigned},p={proof}".encode())
    assert (ours.identity is not None) is is_let_in


@pytest.mark.parametrize("spoil", [
    lambda final: final.replace(b"r=rOpr", b"r=rOpq"),
    lambda final: final.replace(b",p=", b",p=AAAA"),
    lambda final: final[:-4] + b"AAA=",
    lambda final: final.partition(b",p=")[0] + b",p=",
    lambda final: final.partition(b",p=")[0] + b",p=A",
    lambda final: final.replace(b"c=biws", b"c=biwt"),
    lambda final: b"",
])  # fmt: skip
def test_spoilt_proofs_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    ours = server(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    ours.step(CLIENT_FIRST)
    with pytest.raises(LoginRefused) as caught:
        ours.step(spoil(CLIENT_FINAL))
    assert caught.value.told is None
    assert ours.identity is None


@pytest.mark.parametrize(("answer", "reason"), [
    (b"r=other,s=c2FsdA==,i=4096", "nonce"),
    (b"r=cs,s=c2FsdA==,i=4095", "iterations"),
    (b"r=cs,s=c2FsdA==,i=999999999", "iterations"),
    (b"r=cs,s=c2FsdA==,i=9999999999", "cannot be read"),
    (b"r=cs,s=!,i=4096", "cannot be read"),
    (b"", "cannot be read"),
])  # fmt: skip
def test_a_client_does_not_believe_every_server(answer: bytes, reason: str) -> None:
    with pytest.raises(LoginRefused, match=reason):
        ScramClient(SCRAM_SHA_256, "user", "pencil", "c").step(answer)


@pytest.mark.parametrize("final", [b"v=AAAA", b"e=invalid-proof", b"", b"v="])
def test_a_client_has_the_server_prove_itself(final: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", "c")
    client.step(b"r=cs,s=c2FsdA==,i=4096")
    with pytest.raises(LoginRefused):
        client.step(final)
    assert not client.is_done


def test_names_that_scram_does_not_have() -> None:
    with pytest.raises(LoginRefused, match="ASCII"):
        ScramClient(SCRAM_SHA_256, "ümlaut", "pencil", "c").first()


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_in_either_step(token: bytes) -> None:
    with pytest.raises(LoginRefused):
        server().step(token)
    begun = server()
    begun.step(CLIENT_FIRST)
    with pytest.raises(LoginRefused):
        begun.step(token)


@given(st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1))
def test_names_come_back(name: str) -> None:
    escaped = messages.escape(name)
    assert "," not in escaped
    assert messages.unescape(escaped) == name
    assert messages.client_first(f"n,,n={escaped},r=x".encode()).user == name
