"""Entities, settings and words of kafka-configs; the same by znodes."""

import base64
import hashlib
import hmac

import pytest

from logyard.admin.configs import entities
from logyard.admin.configs import znodes as config_znodes
from logyard.admin.configs.entities import BadConfig, Entity, Setting, Synonym
from tests.support.tree_znodes import TreeZnodes


def test_additions() -> None:
    read = entities.parse_additions
    assert read("a=1, b = [2,3],c=") == {"a": "1", "b": "2,3", "c": ""}
    assert read("SCRAM-SHA-256=[iterations=8192,password=x=y]") == {"SCRAM-SHA-256": "iterations=8192,password=x=y"}
    for wrong in ("a", "a=1,b", "a b=1"):
        with pytest.raises(BadConfig, match=r"key=val|Invalid character"):
            read(wrong)


def test_entities() -> None:
    make = entities.make_entity
    assert make(["clients", "users"], ["c", "u"], all_names=False) == Entity(("users", "clients"), ("u", "c"))
    assert make(["topics"], [], all_names=True) == Entity(("topics",))
    for types, names, said in [
        ([], [], "At least one"),
        (["nope"], ["x"], "must be one of"),
        (["users", "users"], ["a", "b"], "Duplicate"),
        (["users", "topics"], ["a", "b"], "may be specified together"),
        (["topics"], [], "must be specified for every"),
        (["users", "clients"], ["u"], "must be specified for every"),
        (["topics"], ["a", "b"], "More entity names"),
        (["brokers"], ["x"], "valid integer broker id"),
        (["topics"], [""], "no default"),
    ]:
        with pytest.raises(BadConfig, match=said):
            make(types, names, all_names=False)


@pytest.mark.parametrize(
    ("entity", "keys", "said"),
    [
        (Entity(("users",), ("u",)), ["retention.ms"], "Only quota and SCRAM"),
        (Entity(("users", "clients"), ("u", "c")), ["SCRAM-SHA-256"], "Only quota configs can be set for 'clients'"),
        (Entity(("clients",), ("c",)), ["SCRAM-SHA-256"], "Only quota"),
        (Entity(("ips",), ("1.2.3.4",)), ["producer_byte_rate"], "connection quota"),
        (Entity(("users",), ("",)), ["SCRAM-SHA-256"], "not allowed with User SCRAM"),
        (Entity(("users",), ("u",)), ["SCRAM-SHA-256", "producer_byte_rate"], "simultaneously"),
    ],
)
def test_what_clients_cannot_have(entity: Entity, keys: list[str], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        entities.check_client_settings(entity, keys)


def test_words() -> None:
    own = Setting(
        "a", None, "DYNAMIC_BROKER_CONFIG", True, (Synonym("STATIC_BROKER_CONFIG", "a", None), Synonym("D", "b", "1"))
    )
    assert str(own) == "  a=null sensitive=true synonyms={STATIC_BROKER_CONFIG:a=null, D:b=1}"
    topic, defaults = Entity(("topics",), ("t",)), Entity(("brokers",), ("",))
    assert entities.heading(topic, everything=False) == "Dynamic configs for topic t are:"
    assert entities.heading(topic, everything=True) == "All configs for topic t are:"
    assert entities.heading(defaults, everything=True) == "Default configs for brokers in the cluster are:"
    assert entities.updated(topic) == "Completed updating config for topic t."
    assert entities.updated(defaults) == "Completed updating default config for brokers in the cluster."
    assert (
        entities.quota_line({"clients": None, "users": "u"}, {"producer_byte_rate": 2e7, "a": 1024})
        == "Quota configs for user-principal 'u', the default client-id are a=1024.0, producer_byte_rate=2.0E7"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0"), (0.5, "0.5"), (9999999, "9999999.0"), (1e7, "1.0E7"), (12345678, "1.2345678E7"), (1.5e-4, "1.5E-4")],
)
def test_doubles_as_java_prints_them(value: float, text: str) -> None:
    assert entities.java_double(value) == text


def test_a_credential_is_rfc_5802s() -> None:
    """RFC 7677's example: user `user`, password `pencil`, 4096 iterations."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    text = entities.credential("SCRAM-SHA-256", "pencil", 4096, salt)
    found = dict(part.split("=", 1) for part in text.split(","))
    assert found["server_key"] == "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert found["stored_key"] == "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert found["iterations"] == "4096"
    with pytest.raises(BadConfig, match="less than the minimum"):
        entities.parse_credential("SCRAM-SHA-256", "iterations=1,password=x")
    with pytest.raises(BadConfig) as said:
        entities.parse_credential("SCRAM-SHA-256", "secret")
    assert "secret" not in str(said.value)


@pytest.fixture
def znodes() -> TreeZnodes:
    made = TreeZnodes()
    made.broker(1)
    made.topic("t", {0: [1]})
    return made


def test_quotas_by_znodes(znodes: TreeZnodes) -> None:
    both = Entity(("users", "clients"), ("a b", ""))
    config_znodes.alter(znodes, both, {"producer_byte_rate": "10"}, [])
    assert znodes.content("/config/users/a%20b/clients/<default>")["config"] == {"producer_byte_rate": "10"}
    changes = znodes.children("/config/changes") or []
    assert znodes.content(f"/config/changes/{changes[0]}")["entity_path"] == "users/a%20b/clients/<default>"
    assert config_znodes.describe(znodes, Entity(("users", "clients"))) == [(both, {"producer_byte_rate": "10"})]
    assert config_znodes.describe(znodes, Entity(("users",))) == []
    assert entities.znode_line(both, {"producer_byte_rate": "10"}) == (
        "Configs for user-principal 'a b', default client-id are producer_byte_rate=10"
    )
    with pytest.raises(BadConfig, match="Invalid config"):
        config_znodes.alter(znodes, both, {}, ["consumer_byte_rate"])
    config_znodes.alter(znodes, both, {}, ["producer_byte_rate"])
    assert config_znodes.describe(znodes, Entity(("users", "clients"))) == []


def test_a_password_is_neither_stored_nor_shown(znodes: TreeZnodes) -> None:
    alice = Entity(("users",), ("alice",))
    config_znodes.alter(znodes, alice, {"SCRAM-SHA-512": "password=pencil"}, [])
    stored = znodes.content("/config/users/alice")["config"]["SCRAM-SHA-512"]
    parts = dict(part.split("=", 1) for part in stored.split(","))
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", base64.b64decode(parts["salt"]), 4096)
    assert (
        parts["stored_key"]
        == base64.b64encode(hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()).decode()
    )
    assert config_znodes.describe(znodes, alice) == [(alice, {"SCRAM-SHA-512": "iterations=4096"})]


def test_brokers_that_run_are_not_changed_behind_their_back(znodes: TreeZnodes) -> None:
    for name in ("1", ""):
        with pytest.raises(BadConfig, match="broker 1 is running"):
            config_znodes.alter(znodes, Entity(("brokers",), (name,)), {"log.cleaner.threads": "2"}, [])
    config_znodes.alter(znodes, Entity(("brokers",), ("7",)), {"log.cleaner.threads": "2"}, [])
    assert znodes.content("/config/brokers/7")["config"] == {"log.cleaner.threads": "2"}
    with pytest.raises(BadConfig, match="Topic none does not exist"):
        config_znodes.alter(znodes, Entity(("topics",), ("none",)), {"a": "1"}, [])
