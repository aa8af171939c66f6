"""Settings of security under three families of names; what is missing is named, and no secret is shown."""

import pytest

from logyard.broker.security.sasl import jaas as brokers_jaas
from logyard.login import jaas, librdkafka, security
from logyard.login.security import SECRETS, BadSettings, Security

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"

SAME: list[dict[str, object]] = [
    {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": "alice",
        "password": 'p"1',
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    },
    {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'p"1',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    },
    {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{JAAS} username="alice" password="p\\"1";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "None",
    },
]


@pytest.mark.parametrize("given", SAME)
def test_three_families_of_names_mean_the_same(given: dict[str, object]) -> None:
    assert security.of(given) == security.of(SAME[0])
    assert librdkafka.options(security.of(given)) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'p"1',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_a_connections_own_login_comes_first() -> None:
    found = security.of(SAME[1], username="bob", password="other")
    assert (found.username, found.password) == ("bob", "other")
    assert security.of(SAME[1], username="", password=None).username == "alice"


def test_our_names_win() -> None:
    found = security.of({"security.protocol": "SSL", "security_protocol": "PLAINTEXT"})
    assert found.security_protocol == "PLAINTEXT"


def test_client_credentials_in_each_family() -> None:
    url, jaas = "https://id.example/token", "M required clientId='me' clientSecret='s s' scope=kafka;"
    base: dict[str, object] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    families: list[dict[str, object]] = [
        {"sasl.jaas.config": jaas, "sasl.oauthbearer.token.endpoint.url": url},
        {
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "s s",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": url,
        },
        {
            "oauth_client_id": "me",
            "oauth_client_secret": "s s",
            "oauth_scope": "kafka",
            "oauth_token_url": url,
        },
    ]
    for given in families:
        found = security.of({**base, **given})
        assert (found.oauth_client_id, found.oauth_client_secret, found.oauth_scope) == ("me", "s s", "kafka")
        assert found.oauth_token_url == url
        assert librdkafka.options(found)["sasl.oauthbearer.method"] == "oidc"


def test_a_delegation_token() -> None:
    found = security.of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{JAAS} username="tokenId" password="hmac" tokenauth="true";',
        }
    )
    assert found.delegation_token is True


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security_protocol": "TLS"}, "security_protocol 'TLS'"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism None"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "DIGEST-MD5"}, "sasl_mechanism 'DIGEST-MD5'"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "oauth_client_id": "x"},
            "oauth_token_url, oauth_client_secret missing",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "delegation_token": True},
            "delegation_token: by SCRAM",
        ),
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "/a"}, "keytool -importkeystore"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "identification.algorithm 'ldaps'"),
        ({"ssl_check_hostname": "maybe"}, "ssl_check_hostname"),
        ({"sasl.jaas.config": 'Module password="hunter2";'}, "is expected"),
        ({"sasl.jaas.config": 'Module required password="hunter2"'}, "semicolon is expected after password"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(BadSettings, match=said) as found:
        security.of(given)
    assert "hunter2" not in str(found.value)
    assert found.value.__cause__ is None


@pytest.mark.parametrize("written", [r"a\tb", r"a\\b", r"\101\7", r"\"quoted\"", r"\q", "plain"])
def test_a_password_of_jaas_is_read_as_brokers_and_kafkas_clients_read_it(written: str) -> None:
    line = f'ScramLoginModule required username="u" password="{written}";'
    (theirs,) = brokers_jaas.parse(line)
    assert jaas.parse(line).options == theirs.options
    assert jaas.parse(jaas.written("M", theirs.options)).options == theirs.options


def test_no_secret_is_in_a_repr() -> None:
    full = security.of({name: f"hidden-{name}" for name in SECRETS})
    assert "hidden-" not in repr(full)
    assert sorted(full.secrets()) == sorted(f"hidden-{name}" for name in SECRETS)


def test_every_secret_field_is_listed() -> None:
    from dataclasses import fields

    assert {one.name for one in fields(Security) if not one.repr} - {"ssl_ca", "ssl_certificate"} == set(SECRETS)
