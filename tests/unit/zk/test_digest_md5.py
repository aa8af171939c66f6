"""DIGEST-MD5, against the exchange printed in RFC 2831 (section 4) and a server that is computed here."""

import hashlib

import pytest

from logyard.broker.zk.digest_md5 import BadChallenge, DigestMd5

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
ZOOKEEPER = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'


def chris() -> DigestMd5:
    return DigestMd5("chris", "secret", "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")


def test_the_rfc_s_exchange() -> None:
    digest = chris()
    assert b"response=d388dad90d4bbd760a152321f2143af7" in digest.respond(CHALLENGE).split(b",")
    digest.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")


@pytest.mark.parametrize("last", [b"", b"rspauth=", b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b"x"])
def test_a_server_that_does_not_know_the_password_is_refused(last: bytes) -> None:
    digest = chris()
    digest.respond(CHALLENGE)
    with pytest.raises(BadChallenge):
        digest.check(last)


def test_nothing_is_checked_before_the_challenge() -> None:
    with pytest.raises(BadChallenge):
        chris().check(b"rspauth=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nonce",
        b'realm="r"',
        b'nonce="",algorithm=md5-sess',
        b'nonce="n",algorithm=md5',
        b'nonce="n",algorithm=md5-sess,qop="auth-conf"',
        b'nonce="n',
        b'nonce="' + b"n" * 5000 + b'",algorithm=md5-sess',
    ],
)
def test_another_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(BadChallenge):
        chris().respond(challenge)


@pytest.mark.parametrize(("name", "encoding"), [("é", "iso-8859-1"), ("€", "utf-8")])
def test_names_are_hashed_in_latin_letters_where_they_can_be(name: str, encoding: str) -> None:
    answer = DigestMd5(name, "p", "c").respond(ZOOKEEPER)

    def md5(text: bytes) -> bytes:
        return hashlib.md5(text).digest()

    first = md5(md5(name.encode(encoding) + b":zk-sasl-md5:p") + b":n:c").hex()
    second = md5(b"AUTHENTICATE:zookeeper/zk-sasl-md5").hex()
    expected = md5(f"{first}:n:00000001:c:auth:{second}".encode()).hex()
    assert f"response={expected}".encode() in answer.split(b",")
    assert f'username="{name}"'.encode() in answer.split(b",")


def test_quotes_are_escaped_and_read() -> None:
    answer = DigestMd5('a"b', "p", "c").respond(b'nonce="x\\"y", qop="auth,auth-int", algorithm=md5-sess')
    assert b'username="a\\"b"' in answer
    assert b'nonce="x\\"y"' in answer
