"""A listener's own settings take precedence over the broker's, a mechanism's over the listener's."""

import pytest

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.listener_keys import base_of, is_of_listener, key_of

HEAD = (
    "zookeeper.connect=z:1\nlisteners=INNER://h:1,OUTER://h:2\n"
    "listener.security.protocol.map=INNER:PLAINTEXT,OUTER:PLAINTEXT\ninter.broker.listener.name=INNER\n"
)
SECRET = "swordfish"


def config(text: str) -> BrokerConfig:
    return BrokerConfig.parse(HEAD + text)


def test_the_brokers_setting_counts_where_the_listener_has_none() -> None:
    read = config(
        "ssl.keystore.location=/all\nssl.keystore.type=PEM\nlistener.name.outer.ssl.keystore.location=/outer\n"
        "listener.name.outer.ssl.client.auth=required\nlistener.name.outer.ssl.enabled.protocols=TLSv1.3"
    )
    inner, outer = read.listener("INNER"), read.listener("OUTER")
    assert [inner.str("ssl.keystore.location"), outer.str("ssl.keystore.location")] == ["/all", "/outer"]
    assert [inner.str("ssl.keystore.type"), outer.str("ssl.keystore.type")] == ["PEM", "PEM"]
    assert [inner.client_auth, outer.client_auth] == ["none", "required"]
    assert outer.list("ssl.enabled.protocols") == ("TLSv1.3",)
    assert inner.list("ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")
    assert outer.name_of("ssl.keystore.location") == "listener.name.outer.ssl.keystore.location"
    assert outer.name_of("ssl.keystore.type") == "ssl.keystore.type"
    with pytest.raises(KeyError):
        read.listener("NONE")


def test_a_mechanisms_setting_counts_first() -> None:
    read = config(
        "connections.max.reauth.ms=1\nlistener.name.outer.connections.max.reauth.ms=2\n"
        "listener.name.outer.scram-sha-256.connections.max.reauth.ms=3\n"
        f'listener.name.outer.plain.sasl.jaas.config=Plain required user_a="{SECRET}";\n'
        "sasl.jaas.config=other\n"
    )
    outer = read.listener("OUTER")
    assert outer.of_mechanism("SCRAM-SHA-256").int("connections.max.reauth.ms") == 3
    assert outer.of_mechanism("PLAIN").int("connections.max.reauth.ms") == 2
    assert read.listener("INNER").of_mechanism("PLAIN").int("connections.max.reauth.ms") == 1
    assert SECRET in (outer.own_of_mechanism("PLAIN", "sasl.jaas.config") or "")
    assert outer.own_of_mechanism("SCRAM-SHA-256", "sasl.jaas.config") is None


def test_names() -> None:
    assert base_of("listener.name.x.plain.sasl.jaas.config") == "sasl.jaas.config"
    assert base_of("listener.name.x.sasl.jaas.config") == "sasl.jaas.config"
    assert base_of("listener.name.x.plain.ssl.keystore.type") == "plain.ssl.keystore.type"
    assert base_of("ssl.keystore.type") is None
    assert key_of("listener.name.x.plain.ssl.keystore.type") is None
    jaas = key_of("listener.name.x.plain.sasl.jaas.config")
    assert jaas is not None
    assert jaas.sensitive
    assert not is_of_listener("listener.name.x.zookeeper.connect")


def test_a_wrong_value_names_the_listeners_key_and_no_secret() -> None:
    with pytest.raises(Exception, match=r"listener\.name\.outer\.ssl\.client\.auth: .*'maybe'"):
        config("listener.name.outer.ssl.client.auth=maybe")
