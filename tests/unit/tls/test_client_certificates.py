"""Certificates of clients: their principals, and who is refused."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.tls_listener import (
    AUTHORITY,
    CLIENT,
    OTHERS,
    Echo,
    answer,
    client_context,
    connect,
    framed,
    listening,
    settings,
)

Main = Callable[[], Coroutine[Any, Any, None]]


def test_the_principal_is_the_subject(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        echo = Echo()
        async with listening(echo, settings(ssl_client_auth="required")) as listener:
            for _ in range(2):
                reader, writer = await connect(listener, client_context(CLIENT))
                writer.write(framed(b"ab"))
                assert await answer(reader) == b"ab"
                writer.close()
        assert echo.principals == ["User:CN=client"] * 2

    run(main)


def test_rules_make_the_name(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        echo = Echo()
        rules = "RULE:^CN=(.*)$/$1/U"
        given = settings(ssl_client_auth="requested") | {"ssl.principal.mapping.rules": rules}
        async with listening(echo, given) as listener:
            for own in (CLIENT, None):
                reader, writer = await connect(listener, client_context(own))
                writer.write(framed(b"ab"))
                assert await answer(reader) == b"ab"
                writer.close()
        assert echo.principals == ["User:CLIENT", "User:ANONYMOUS"]

    run(main)


@pytest.mark.parametrize(
    ("own", "rules", "why"),
    [
        (None, "DEFAULT", "has no certificate"),
        (OTHERS.issue("stranger"), "DEFAULT", "the peer's certificate is refused"),
        (CLIENT, "RULE:CN=nobody/x/", "no rule of ssl.principal.mapping.rules applies to 'CN=client'"),
    ],
)
def test_others_are_refused(run: Callable[[Main], None], own: Any, rules: str, why: str) -> None:
    async def main() -> None:
        echo = Echo()
        given = settings(ssl_client_auth="required") | {"ssl.principal.mapping.rules": rules}
        with capture_logs() as lines:
            async with listening(echo, given) as listener:
                with pytest.raises((OSError, EOFError)):  # noqa: PT012
                    reader, writer = await connect(listener, client_context(own))
                    writer.write(framed(b"ab"))
                    await answer(reader)
                    raise OSError
                while listener.connections:
                    await asyncio.sleep(0.001)
        assert echo.principals == []
        assert [why in line["why"] for line in lines if line["event"] == "TLS handshake failed"] == [True]

    run(main)


def test_who_does_not_trust_the_broker_is_named(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        with capture_logs() as lines:
            async with listening(Echo(), settings(trusted=AUTHORITY)) as listener:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await asyncio.to_thread(shake, listener.port, client_context(trusted=OTHERS))
                while listener.connections:
                    await asyncio.sleep(0.001)
        assert [line["why"] for line in lines if line["event"] == "TLS handshake failed"] == [
            "the peer does not trust this side's certificate"
        ]

    run(main)


def shake(port: int, context: ssl.SSLContext) -> None:
    """Connect as a plain program does; asyncio's client would send no alert."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        context.wrap_socket(sock, server_hostname="127.0.0.1").close()
