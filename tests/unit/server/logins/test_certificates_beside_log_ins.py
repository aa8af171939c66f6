"""Listeners with SASL over TLS: who has to show a certificate is the listener's own setting, not the broker's."""

import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from logyard.broker.security.sasl.mechanism import PLAIN
from logyard.broker.security.sasl.plain import PlainClient
from tests.support.certificates import Authority, Issued
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient
from tests.support.tls_listener import AUTHORITY, CLIENT, SERVER, client_context

pytestmark = pytest.mark.asyncio(loop_scope="module")
OWN = {"NONE": "none", "REQUESTED": "requested", "REQUIRED": "required"}
STRANGER = Authority().issue("stranger")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["requested", "required"])
async def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[InsideBroker]:
    """One whose own setting is the parameter; the listener UNSET has none."""
    directory = tmp_path_factory.mktemp("broker")
    names = [*OWN, "UNSET"]
    settings = {
        "listeners": ",".join(["PLAINTEXT://127.0.0.1:0", *(f"{name}://127.0.0.1:0" for name in names)]),
        "listener.security.protocol.map": ",".join(["PLAINTEXT:PLAINTEXT", *(f"{name}:SASL_SSL" for name in names)]),
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.client.auth": request.param,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(SERVER.write_pem(directory / "own.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(AUTHORITY.write_pem(directory / "ca.pem")),
    }
    for name in names:
        settings[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = "x.PlainLoginModule required user_a='x';"
    for name, asked in OWN.items():
        settings[f"listener.name.{name.lower()}.ssl.client.auth"] = asked
    async with InsideBroker(directory, settings) as started:
        yield started


async def is_let_in(broker: InsideBroker, listener: str, own: Issued | None) -> bool:
    try:
        client = await SaslClient.connect(broker.port_of(listener), client_context(own))
        answer = await client.log_in(PLAIN, PlainClient("a", "x"))
        return answer.error_code == 0 and await client.is_served()
    except (AssertionError, ssl.SSLError, OSError):  # it was closed, or shows no certificate that is taken
        return False


@pytest.mark.parametrize(
    ("listener", "valid", "none", "untrusted"),
    [
        ("NONE", True, True, True),
        ("REQUESTED", True, True, False),
        ("REQUIRED", True, False, False),
        ("UNSET", True, True, True),
    ],
)
async def test_who_has_to_show_a_certificate(
    broker: InsideBroker, listener: str, valid: bool, none: bool, untrusted: bool
) -> None:
    found = [await is_let_in(broker, listener, own) for own in (CLIENT, None, STRANGER)]
    assert found == [valid, none, untrusted]
