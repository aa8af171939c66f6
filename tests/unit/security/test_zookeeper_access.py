"""How Kafka's settings and a JAAS file become the access to ZooKeeper."""

import ssl
from pathlib import Path

import pytest

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.errors import LogyardError
from logyard.broker.security import zookeeper_access
from logyard.broker.zk.access import ANYBODY, Login
from logyard.local.authority import Authority

JAAS = """
Server { com.example.Other required; };
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  username="kafka" password="s3cret-pw";
};
Elsewhere { org.apache.zookeeper.server.auth.DigestLoginModule required username="other" password="x"; };
Other { org.x.PlainLoginModule required; };
Kerberos { com.sun.security.auth.module.Krb5LoginModule required; };
Nameless { org.apache.zookeeper.server.auth.DigestLoginModule required username="other"; };
"""


def config(**keys: object) -> BrokerConfig:
    text = "".join(f"{name.replace('__', '.')}={value}\n" for name, value in keys.items())
    return BrokerConfig.parse("zookeeper.connect=localhost:2181\n" + text, strict=True)


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    path = tmp_path / "jaas.conf"
    path.write_text(JAAS)
    return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_nothing_is_configured() -> None:
    assert zookeeper_access.of_broker(config(), {}) == ANYBODY
    assert zookeeper_access.of_tool(None, {}) == ANYBODY
    assert not ANYBODY.has_identity


def test_the_jaas_file_by_our_key_and_by_java_s_properties(jaas: Path) -> None:
    expected = Login("kafka", "s3cret-pw", f"section Client of {jaas}")
    by_key = zookeeper_access.of_broker(config(logyard__jaas__config__file=jaas), {})
    by_java = zookeeper_access.of_broker(
        config(), {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={jaas} -Dx"}
    )
    assert by_key.login == by_java.login == expected
    assert by_key.has_identity
    assert "s3cret-pw" not in repr(by_key)


def test_java_s_properties_choose_the_section_or_none(jaas: Path) -> None:
    options = f"-Djava.security.auth.login.config='{jaas}'"
    other = {"KAFKA_OPTS": f"{options} -Dzookeeper.sasl.clientconfig=Elsewhere"}
    login = zookeeper_access.of_tool(None, other).login
    assert login is not None
    assert login.username == "other"
    assert zookeeper_access.of_tool(None, {"KAFKA_OPTS": f"{options} -Dzookeeper.sasl.client=false"}) == ANYBODY
    # As in Kafka: a file for listeners only.
    assert zookeeper_access.of_tool(None, {"KAFKA_OPTS": f"{options} -Dzookeeper.sasl.clientconfig=No"}) == ANYBODY


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("Kerberos", "useKeyTab=true"),
        ("Other", "PlainLoginModule is not supported"),
        ("Nameless", "username and password"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused(jaas: Path, section: str, problem: str) -> None:
    options = f"-Djava.security.auth.login.config={jaas} -Dzookeeper.sasl.clientconfig={section}"
    with pytest.raises(LogyardError, match=f"section {section} of .*{problem}"):
        zookeeper_access.of_tool(None, {"KAFKA_OPTS": options})


def test_a_file_that_cannot_be_read_is_refused_without_its_secrets(jaas: Path, tmp_path: Path) -> None:
    with pytest.raises(LogyardError, match="No such file"):
        zookeeper_access.of_broker(config(logyard__jaas__config__file=tmp_path / "no"), {})
    jaas.write_text('Client { Digest required password="s3cret-pw" ')
    with pytest.raises(LogyardError, match="JAAS file") as refused:
        zookeeper_access.of_broker(config(logyard__jaas__config__file=jaas), {})
    assert "s3cret-pw" not in str(refused.value)


def test_tls_trusts_the_configured_authorities_and_checks_the_name(authority: Authority) -> None:
    access = zookeeper_access.of_broker(
        config(zookeeper__ssl__client__enable="true", zookeeper__ssl__truststore__location=authority.certificate), {}
    )
    assert access.tls is not None
    context = access.tls()
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2, "Kafka's default of zookeeper.ssl.protocol"
    assert not access.has_identity


def test_versions_names_and_certificates_are_kafka_s_settings(authority: Authority) -> None:
    access = zookeeper_access.of_broker(
        config(
            zookeeper__ssl__client__enable="true",
            zookeeper__clientCnxnSocket="org.apache.zookeeper.ClientCnxnSocketNetty",
            zookeeper__ssl__truststore__location=authority.certificate,
            zookeeper__ssl__keystore__location=authority.issue("broker").pem,
            zookeeper__ssl__enabled__protocols="TLSv1.2,TLSv1.3",
            zookeeper__ssl__endpoint__identification__algorithm="",
            zookeeper__set__acl="true",
        ),
        {},
    )
    assert access.has_identity
    assert access.tls is not None
    context = access.tls()
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.maximum_version == ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"zookeeper.ssl.truststore.location": "/nowhere/trust.pem"}, r"zookeeper\.ssl\.truststore\.location"),
        ({"zookeeper.ssl.keystore.location": "/nowhere/keys.p12"}, r"zookeeper\.ssl\.keystore"),
        ({"zookeeper.ssl.keystore.location": "/nowhere/keys"}, r"zookeeper\.ssl\.keystore\.type: set it"),
        ({"zookeeper.ssl.enabled.protocols": "TLSv9"}, r"zookeeper\.ssl\.enabled\.protocols"),
    ],
)
def test_what_cannot_be_used_is_named_by_its_key(keys: dict[str, str], problem: str) -> None:
    text = "zookeeper.connect=z:1\nzookeeper.ssl.client.enable=true\n"
    text += "".join(f"{name}={value}\n" for name, value in keys.items())
    with pytest.raises(LogyardError, match=problem):
        zookeeper_access.of_broker(BrokerConfig.parse(text), {})


def test_acls_without_an_identity_are_refused(authority: Authority) -> None:
    for keys in (
        {},
        {"zookeeper__ssl__client__enable": "true", "zookeeper__ssl__truststore__location": authority.certificate},
    ):
        with pytest.raises(LogyardError, match=r"zookeeper\.set\.acl: the broker has no identity"):
            zookeeper_access.of_broker(config(zookeeper__set__acl="true", **keys), {})


def test_a_tool_s_file_has_kafka_s_keys_and_others_are_ignored(
    authority: Authority, jaas: Path, tmp_path: Path
) -> None:
    path = tmp_path / "zk.properties"
    path.write_text(
        f"zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location={authority.certificate}\n"
        f"bootstrap.servers=x\nlogyard.jaas.config.file={jaas}\n"
    )
    by_option = zookeeper_access.of_tool(path, {})
    by_variable = zookeeper_access.of_tool(None, {"LOGYARD_ZK_TLS_CONFIG_FILE": str(path)})
    for access in (by_option, by_variable):
        assert access.tls is not None
        assert access.login is not None
    path.write_text("zookeeper.ssl.client.enable=perhaps\n")
    with pytest.raises(LogyardError, match=r"zk\.properties: zookeeper\.ssl\.client\.enable: true or false"):
        zookeeper_access.of_tool(path, {})
    with pytest.raises(LogyardError, match="No such file"):
        zookeeper_access.of_tool(tmp_path / "none", {})


def test_the_authorizers_settings_are_laid_over_the_brokers(authority: Authority, jaas: Path) -> None:
    """As AclAuthorizer does: TLS only if it is on for the authorizer, or for the broker and not off here."""
    client = authority.issue("acls-client")
    base = {"zookeeper__ssl__truststore__location": authority.certificate, "logyard__jaas__config__file": jaas}
    plain = zookeeper_access.of_authorizer(config(**base), {})
    assert (plain.tls, plain.login is not None) == (None, True)
    on = {"authorizer__zookeeper__ssl__client__enable": "true"}
    over = zookeeper_access.of_authorizer(config(**base, **on), {})
    assert over.tls is not None
    assert not over.has_certificate
    assert zookeeper_access.of_broker(config(**base, **on), {}).tls is None
    own = {"authorizer__zookeeper__ssl__keystore__location": client.pem}
    assert zookeeper_access.of_authorizer(config(**base, **on, **own), {}).has_certificate
    everywhere = {"zookeeper__ssl__client__enable": "true"}
    assert zookeeper_access.of_authorizer(config(**base, **everywhere), {}).tls is not None
    off = {"authorizer__zookeeper__ssl__client__enable": "false"}
    assert zookeeper_access.of_authorizer(config(**base, **everywhere, **off), {}).tls is None
    wrong = {"authorizer__zookeeper__ssl__truststore__location": "/nowhere.pem"}
    with pytest.raises(LogyardError, match=r"/nowhere\.pem"):
        zookeeper_access.of_authorizer(config(**base, **on, **wrong), {})
