from pathlib import Path

import pytest

from logyard.cli import command_config
from logyard.local.errors import LocalError
from logyard.login.security import BadSettings


def test_properties_are_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# comment\n! too\n\na.b=c = d\n  x : y\nlong=1,\\\n   2\nempty=\n")
    assert command_config.read(path) == {"a.b": "c = d", "x": "y", "long": "1,2", "empty": ""}
    path.write_text("nonsense\n")
    with pytest.raises(LocalError, match="line 1 is not key=value"):
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
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "/ca.jks"}, "ssl.truststore.type JKS"),
        ({"ssl.keystore.type": "JKS", "ssl.keystore.location": "/k"}, "keytool -importkeystore"),
        ({"sasl.jaas.config": "Module required password=hunter2"}, "final semicolon is expected after password"),
        ({"request.timeout.ms": "soon"}, "number of milliseconds"),
    ],
)
def test_what_cannot_be_used_is_said(properties: dict[str, str], said: str) -> None:
    with pytest.raises((LocalError, BadSettings), match=said):
        command_config.settings("b:1", properties)


def test_values_are_unescaped_as_java_does(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text('pem=-----BEGIN X-----\\\n  \\nabc\\n-----END X-----\njaas=\\u0061 p\\\\"q\n')
    assert command_config.read(path) == {"pem": "-----BEGIN X-----\nabc\n-----END X-----", "jaas": 'a p\\"q'}


@pytest.mark.parametrize(
    ("mode", "text", "warned"),
    [
        (0o644, "sasl.password=p\n", True),
        (0o604, "ssl.keystore.key=k\n", True),
        (0o640, "sasl.password=p\n", False),
        (0o600, "sasl.password=p\n", False),
        (0o644, "security.protocol=SSL\n", False),
    ],
)
def test_a_password_that_everybody_can_read_is_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, text: str, warned: bool
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    path.chmod(mode)
    command_config.read(path)
    said = capsys.readouterr()
    assert ("chmod 600" in said.err) is warned
    assert said.out == ""


def test_a_line_that_is_no_property_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nMIIEvQIBADANBg\n")
    with pytest.raises(LocalError, match="line 2") as found:
        command_config.read(path)
    assert "MIIE" not in str(found.value)


def test_a_users_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    password = 'a"b\\c;\t='
    given = {"security.protocol": "SASL_SSL", "ssl.truststore.location": "/ca.pem", "sasl.password": "admin-secret"}
    made = command_config.of_user(given, "al ice", "SCRAM-SHA-256", password)
    path = tmp_path / "alice.properties"
    command_config.write(path, made, "--client-config")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "admin-secret" not in path.read_text()
    found = command_config.settings("b:1", command_config.read(path))
    assert (found.username, found.password, found.sasl_mechanism) == ("al ice", password, "SCRAM-SHA-256")
    assert (found.ssl_cafile, found.security_protocol) == ("/ca.pem", "SASL_SSL")
    with pytest.raises(LocalError, match="File exists"):
        command_config.write(path, made, "--client-config")
    with pytest.raises(LocalError, match="a listener for SSL, where nobody logs in"):
        command_config.of_user({"security.protocol": "SSL"}, "a", "SCRAM-SHA-256", "p")


@pytest.mark.parametrize("given", ["localhost", "a:1, localhost", "localhost,[::1]:9092"])
def test_an_address_without_a_port_is_refused(given: str) -> None:
    with pytest.raises(
        LocalError, match=r"^--bootstrap-server localhost: host:port is expected, such as localhost:9092$"
    ):
        command_config.settings(given, {})
    assert command_config.settings("[::1]:9092,a:1", {}).bootstrap == ("[::1]:9092", "a:1")


def test_commands_do_not_wait_for_names() -> None:
    assert not command_config.settings("a:1", {}).waits_for_names
