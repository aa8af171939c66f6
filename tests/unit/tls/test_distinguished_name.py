"""A subject is written as Java writes it. The texts on the right are what Java 17 printed for these bytes."""

from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.tls.distinguished_name import rfc2253

# Printed by `new X500Principal(bytes).getName()` of Java 17.
OF_JAVA = [
    ("3000", ""),
    ("304c3131302f06035504071c28000000090000002c000000280000002b000000df00000021000000090000005f000000610000000a"
     "3117300b06035504071c04000000633008060355040602014b",
     "L=#1c0400000063+C=#02014b,L=#1c28000000090000002c000000280000002b000000df00000021000000090000005f000000610000000a"),
    ("301a3109300706035504041e00310d300b06035504031c040000005c", "CN=#1c040000005c,2.5.4.4=#1e00"),
    ("305b313e301e060a0992268993f22c6401191c10000000250000003e0000000a0000003a3009060355040a0c025809301106092a864886f7"
     "0d010901140424303a61311930080603883701020119300d060355042a1b062a2bf09f9880",
     "2.999.1=#020119+2.5.4.42=#1b062a2bf09f9880,DC=#1c10000000250000003e0000000a0000003a+O=X\t"
     "+1.2.840.113549.1.9.1=#140424303a61"),
]  # fmt: skip


@pytest.mark.parametrize(("der", "text"), OF_JAVA)
def test_as_java(der: str, text: str) -> None:
    assert rfc2253(bytes.fromhex(der)) == text


def name(*parts: tuple[x509.ObjectIdentifier, str]) -> bytes:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts]).public_bytes()


def test_order_names_and_unnamed_parts() -> None:
    found = rfc2253(
        name(
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.ORGANIZATION_NAME, "Yard, Inc."),
            (NameOID.EMAIL_ADDRESS, "a@b"),
            (NameOID.USER_ID, "u"),
            (NameOID.COMMON_NAME, " #x "),
        )
    )
    assert found == r"CN=\ \#x\ ,UID=u,1.2.840.113549.1.9.1=#1603614062,O=Yard\, Inc.,C=DE"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), max_size=4))
def test_names_can_be_told_apart(values: list[str]) -> None:
    """Unescaped, the text gives the values back: two subjects never have one name."""
    text = rfc2253(name(*((NameOID.ORGANIZATION_NAME, value) for value in values)))
    found: list[str] = []
    at = 0
    while at < len(text):
        assert text[at : at + 2] == "O="
        at += 2
        value = ""
        while at < len(text) and text[at] != ",":
            if text[at : at + 3] == "\\00":
                value, at = value + "\0", at + 3
            elif text[at] == "\\":
                value, at = value + text[at + 1], at + 2
            else:
                value, at = value + text[at], at + 1
        found.append(value)
        at += 1
    assert found == list(reversed(values))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_name_or_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        rfc2253(data)
