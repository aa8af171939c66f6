from pathlib import Path

import pytest

from logyard.cli import command_config
from logyard.local.errors import LocalError


def test_properties_are_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# comment\n! too\n\na.b=c = d\n  x : y\nlong=1,\\\n   2\nempty=\n")
    assert command_config.read(path) == {"a.b": "c = d", "x": "y", "long": "1,2", "empty": ""}
    path.write_text("nonsense\n")
    with pytest.raises(LocalError, match="'nonsense' is not key=value"):
        command_config.read(path)
    with pytest.raises(LocalError, match="No such file"):
        command_config.read(tmp_path / "none")


def test_sasl_over_tls() -> None:
    found = command_config.settings(
        "b:1,c:2",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'o.a.k.ScramLoginModule required username="a b" password="p\\"q";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
            "request.timeout.ms": "1500",
        },
    )
    assert found.bootstrap == ("b:1", "c:2")
    assert (found.security_protocol, found.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (found.username, found.password) == ("a b", 'p"q')
    assert (found.ssl_cafile, found.ssl_check_hostname, found.request_timeout_s) == ("/ca.pem", False, 1.5)


def test_librdkafkas_names_are_understood() -> None:
    properties = {"ssl.ca.location": "/ca", "sasl.username": "u", "sasl.password": "p"}
    found = command_config.settings("b:1", properties)
    assert (found.ssl_cafile, found.username, found.password) == ("/ca", "u", "p")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ssl.truststore.location": "/ca.jks"}, "ssl.truststore.type JKS"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k"}, "ssl.keystore.type PKCS12"),
        ({"request.timeout.ms": "soon"}, "number of milliseconds"),
    ],
)
def test_what_cannot_be_used_is_said(properties: dict[str, str], said: str) -> None:
    with pytest.raises(LocalError, match=said):
        command_config.settings("b:1", properties)
