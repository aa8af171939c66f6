"""Our admin client, the jobs' one and the commands log in by every protocol, mechanism and form of certificates.

On Apache Kafka and on ours, secured. What is refused is told by its step.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from logyard.admin.cluster.reachability import why_unreachable
from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.cli import main as entry
from logyard.local import interrupts
from logyard.spark_jobs.metadata import MetadataClient
from tests.support import kafka, secured
from tests.support.secured import MECHANISMS, Secured

pytestmark = pytest.mark.timeout(300)

LOGINS = [("SSL", ""), *((p, m) for p in ("SASL_PLAINTEXT", "SASL_SSL") for m in MECHANISMS)]
QUICK = {"total_timeout_s": 6, "request_timeout_s": 5}


@pytest.fixture(scope="module", params=["K", "O"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    with secured.running(tmp_path_factory.mktemp("secured"), request.param) as running:
        running.create("flights")
        yield running


def topics(settings: ClusterSettings) -> list[str]:
    client = ClusterRequests(settings)
    try:
        return sorted(client.snapshot().topics)
    finally:
        client.close()


@pytest.mark.parametrize("family", ["librdkafka", "java"])
@pytest.mark.parametrize(("protocol", "mechanism"), LOGINS)
def test_every_protocol_and_mechanism(world: Secured, protocol: str, mechanism: str, family: str) -> None:
    given: Mapping[str, Any] = getattr(world, family)("admin", mechanism, protocol)
    settings = ClusterSettings.read(world.bootstrap(protocol), {**given, **QUICK})
    # By certificate it is another user, to whom no topic is shown.
    expected = [] if protocol == "SSL" else ["flights"]
    assert topics(settings) == expected
    reader = MetadataClient(world.bootstrap(protocol), settings.security())
    try:
        assert sorted(reader.look(None).topics) == expected
    finally:
        reader.close()


def test_the_official_providers_connection_is_enough(world: Secured) -> None:
    """Its extra is librdkafka's settings, bootstrap.servers and all; it has no host."""
    assert topics(ClusterSettings.read("", {**world.librdkafka("admin"), "group.id": "g"})) == ["flights"]


def test_a_delegation_token_logs_in(world: Secured) -> None:
    said = kafka.tool(
        "delegation-tokens",
        *("--bootstrap-server", world.bootstrap(), "--command-config", str(world.file("admin"))),
        *("--create", "--max-life-time-period", "-1"),
    )
    token, hmac = said.strip().splitlines()[-1].split()[:2]
    settings = ClusterSettings.read(
        world.bootstrap(),
        {**world.java("admin"), "sasl.jaas.config": "", "delegation_token": True, **QUICK},
        username=token,
        password=hmac,
    )
    assert topics(settings) == ["flights"]


def test_a_commands_file(world: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    for user, mechanism in (("admin", "SCRAM-SHA-256"), ("admin", "OAUTHBEARER")):
        where = ["--bootstrap-server", world.bootstrap(), "--command-config", str(world.file(user, mechanism))]
        assert entry.main(["topics", "list", *where]) == 0
        told = capsys.readouterr()
        assert (told.out, told.err) == ("flights\n", "")


@pytest.mark.parametrize(
    ("protocol", "mechanism", "changed", "said"),
    [
        ("SASL_SSL", "PLAIN", {"password": "wrong-1"}, "user 'alice' or its password is refused by PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512", {"password": "wrong-1"}, "is refused by SCRAM-SHA-512"),
        ("SASL_SSL", "SCRAM-SHA-512", {"username": "zoe"}, "user 'zoe' or its password is refused"),
        ("SASL_SSL", "OAUTHBEARER", {"oauth_client_secret": "wrong-1"}, "refuses client 'alice': 401 invalid_client"),
        ("SASL_SSL", "OAUTHBEARER", {"oauth_token": "wrong-1"}, "is refused by OAUTHBEARER"),
        ("SASL_SSL", "PLAIN", {"ssl_cafile": None}, "is not trusted"),
        ("SASL_SSL", "PLAIN", {"ssl_cafile": "/nowhere.pem"}, "No such file"),
    ],
)
def test_a_refusal_names_its_step(
    world: Secured, protocol: str, mechanism: str, changed: dict[str, Any], said: str
) -> None:
    given = ClusterSettings.read(world.bootstrap(protocol), world.java("alice", mechanism, protocol)).security()
    settings = ClusterSettings.read(world.bootstrap(protocol), {**given, **changed, **QUICK})
    with pytest.raises(Exception) as found:
        topics(settings)
    told = str(found.value)
    if isinstance(found.value, ClusterUnreachable):
        told = why_unreachable(settings, found.value)
    assert said in told
    assert isinstance(found.value, AccessRefused) == ("refuse" in said)
    assert not [secret for secret in [*world.used_secrets, "wrong-1"] if secret in told + str(found.value)]
