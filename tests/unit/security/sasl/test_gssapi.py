"""GSSAPI without Kerberos: what follows its tokens, and what the settings say. The rest needs a KDC:
tests/integration/clients/test_kerberos.py."""

import sys

import pytest

from logyard.broker.security.sasl import jaas, kerberos
from logyard.broker.security.sasl.gssapi import GssapiClient, GssapiServer, GssFailure
from logyard.broker.security.sasl.kerberos_names import KerberosNames
from logyard.broker.security.sasl.mechanism import LoginRefused
from tests.support.scripted_gss import ScriptedContext, signed

NAMES = KerberosNames(["DEFAULT"], "R")
MODULE = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="kafka/h@R";'


def accepting(peer: str = "alice@R", last: bytes = b"reply") -> GssapiServer:
    return GssapiServer(lambda: ScriptedContext([b"hello"], [last], peer), NAMES)


def test_the_server_offers_no_layer_and_the_ticket_says_who_it_is() -> None:
    server = accepting()
    assert server.step(b"hello") == b"reply"
    assert (server.claimed, server.identity) == ("alice@R", None)
    assert server.step(b"") == signed(b"\x01\x01\x00\x00")
    assert server.step(signed(b"\x01\x00\x00\x00bob@R")) == b""
    assert server.identity is not None
    assert server.identity.name == "alice"


def test_a_context_without_a_last_token_is_followed_by_the_offer() -> None:
    assert accepting(last=b"").step(b"hello") == signed(b"\x01\x01\x00\x00")


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([b"other"], "invalid"),
        ([b"hello", b"x"], "none is left"),
        ([b"hello", b"", b""], "signature"),
        ([b"hello", b"", signed(b"")], "layer"),
        ([b"hello", b"", signed(b"\x01")], "layer"),
        ([b"hello", b"", signed(b"\x02\0\0\0")], "layer"),
        ([b"hello", b"", signed(b"\x04\0\0\0")], "layer"),
        ([b"hello", b"", signed(b"\x03\0\0\0")], "layer"),
    ],
)
def test_other_tokens_are_refused(tokens: list[bytes], why: str) -> None:
    server = accepting()
    for token in tokens[:-1]:
        server.step(token)
    with pytest.raises(LoginRefused, match=why) as refused:
        server.step(tokens[-1])
    assert refused.value.told is None
    assert server.identity is None


def test_a_principal_without_a_name_is_refused() -> None:
    server = accepting("alice@ELSEWHERE")
    server.step(b"hello")
    server.step(b"")
    with pytest.raises(LoginRefused, match="no rule"):
        server.step(signed(b"\x01\0\0\0"))
    assert server.identity is None


def test_the_client_takes_no_layer() -> None:
    client = GssapiClient(lambda: ScriptedContext([b"", b"reply"], [b"hello", b""]))
    assert client.first() == b"hello"
    assert client.step(b"reply") == b""
    assert client.step(signed(b"\x07\x01\x00\x00")) == signed(b"\x01\x01\x00\x00")
    assert not client.is_done
    assert client.step(b"") is None
    assert client.is_done


@pytest.mark.parametrize("offer", [signed(b"\x06\x01\0\0"), signed(b""), signed(b"\x01\0\0\0\0"), b"x"])
def test_the_client_refuses_what_is_no_offer(offer: bytes) -> None:
    client = GssapiClient(lambda: ScriptedContext([b"", b"reply"], [b"hello", b""]))
    client.first()
    client.step(b"reply")
    with pytest.raises(LoginRefused):
        client.step(offer)
    assert not client.is_done


def test_a_client_without_a_ticket_says_why() -> None:
    def none() -> ScriptedContext:
        raise GssFailure("Cannot contact any KDC for realm 'R'")

    with pytest.raises(LoginRefused, match="any KDC"):
        GssapiClient(none).first()


@pytest.mark.parametrize(
    "options",
    [
        "",
        "useKeyTab=true",
        'useKeyTab=true keyTab="/k"',
        'useKeyTab=false keyTab="/k" principal="p"',
        "useTicketCache=true",
    ],
)
def test_a_module_without_a_keytab_is_refused(options: str) -> None:
    with pytest.raises(ValueError, match="useKeyTab=true storeKey=true keyTab"):
        kerberos.keytab_of(jaas.parse(f"x.Krb5LoginModule required {options};")[0])


def test_the_service_name_is_that_of_the_setting_or_the_module() -> None:
    plain, own = jaas.parse(MODULE)[0], jaas.parse(MODULE.replace(";", ' serviceName="kafka";'))[0]
    assert kerberos.keytab_of(plain) == kerberos.Keytab("kafka/h@R", "/k")
    assert [kerberos.service_name(plain, "kafka"), kerberos.service_name(own, None)] == ["kafka", "kafka"]
    with pytest.raises(ValueError, match="not set"):
        kerberos.service_name(plain, None)
    with pytest.raises(ValueError, match="have to be equal"):
        kerberos.service_name(own, "broker")


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ValueError, match=r"pip install 'logyard\[kerberos\]'") as refused:
        kerberos.Kerberos(kerberos.Keytab("kafka/h@R", "/k"))
    assert "\n" not in str(refused.value)
