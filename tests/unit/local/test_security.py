"""The files of a secured cluster: who may read them, what they say, and that they stay the same."""

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509

from logyard.local.authority import Authority
from logyard.local.errors import LocalError
from logyard.local.layout import Layout, Settings
from logyard.local.security import ADMIN, AT_ZOOKEEPER, BROKER, ClusterSecurity

USERS = (ADMIN, BROKER, AT_ZOOKEEPER)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reads_what_is_secret(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path)
    security.write_client_file("h:1,h:2")
    settings = Settings(1, secure=True)
    properties = Layout(tmp_path).write_properties(0, 1, "z:1", settings, security.broker_keys(0, own_zookeeper=True))
    secrets = {security.password(user) for user in USERS}
    assert len(secrets) == 3
    assert mode(security.folder) == 0o700
    for path in [one for one in tmp_path.rglob("*") if one.is_file()]:
        text = path.read_text()
        if "PRIVATE KEY" in text or any(secret in text for secret in secrets):
            assert mode(path) == 0o600, path
    assert security.password(BROKER) in properties.read_text()
    assert "listeners=SASL_SSL://127.0.0.1:1\nadvertised.listeners=SASL_SSL" in properties.read_text()


def test_a_later_start_finds_the_same(tmp_path: Path) -> None:
    first, second = ClusterSecurity(tmp_path), ClusterSecurity(tmp_path)
    assert [first.password(user) for user in USERS] == [second.password(user) for user in USERS]
    assert first.broker_keys(0, own_zookeeper=True) == second.broker_keys(0, own_zookeeper=True)


def test_each_broker_has_a_key_and_a_certificate_of_its_own(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path)
    stores = [Path(security.broker_keys(n, own_zookeeper=True)["ssl.keystore.location"]) for n in (0, 1)]
    keys, subjects = set(), set()
    for store in stores:
        text = store.read_bytes()
        keys.add(text[: text.index(b"BEGIN CERTIFICATE")])
        own, above = x509.load_pem_x509_certificates(text)
        own.verify_directly_issued_by(above)
        subjects.add(own.subject.rfc4514_string())
    assert len(keys) == 2
    assert subjects == {"CN=broker-0", "CN=broker-1"}


def test_the_client_file_is_for_our_tools_and_kafka_s(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path)
    security.write_client_file("h:1")
    lines = security.client_file.read_text().splitlines()
    assert "bootstrap.servers=h:1" in lines
    assert "security.protocol=SASL_SSL" in lines
    assert any(line.startswith("sasl.jaas.config=org.apache.kafka") and f'"{ADMIN}"' in line for line in lines)


def test_another_zookeeper_is_used_as_it_is(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path)
    assert "zookeeper.set.acl" not in security.broker_keys(0, own_zookeeper=False)
    assert security.broker_keys(0, own_zookeeper=True)["zookeeper.set.acl"] == "true"
    assert security.password(AT_ZOOKEEPER) not in repr(security.zookeeper_access())


def test_the_description_names_the_client_s_file(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.write_description("z:1", [], tmp_path / "client.properties")
    assert json.loads(layout.description.read_text())["command_config"] == str(tmp_path / "client.properties")


def test_certificates_are_for_their_hosts_and_by_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("broker", ("localhost", "127.0.0.1"))
    own, above = x509.load_pem_x509_certificates(issued.certificate.read_bytes())
    own.verify_directly_issued_by(above)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    again = Authority(tmp_path)
    assert again.issue("broker", ("localhost",)) == issued
    assert again.issue("other").pem.read_text().count("BEGIN CERTIFICATE") == 2


def test_an_authority_that_was_made_anew_signs_again(tmp_path: Path) -> None:
    first = Authority(tmp_path).issue("broker").pem.read_text()
    (tmp_path / "ca.pem").unlink()  # as after a kill between key and certificate
    again = Authority(tmp_path)
    assert again.issue("broker").pem.read_text() != first
    own, above = x509.load_pem_x509_certificates(again.issue("broker").certificate.read_bytes())
    own.verify_directly_issued_by(above)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [("ca.key", "", "are no key"), ("ca.pem", "x", "are no key"), ("ca.key", None, "is not the key")],
)
def test_what_is_no_authority_is_refused(tmp_path: Path, file: str, text: str | None, told: str) -> None:
    Authority(tmp_path / "a")
    Authority(tmp_path / "b")
    other = (tmp_path / "b" / file).read_text() if text is None else text
    (tmp_path / "a" / file).write_text(other)
    with pytest.raises(LocalError, match=told):
        Authority(tmp_path / "a")
