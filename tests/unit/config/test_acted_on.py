"""The list of keys that Logyard acts on is what the code reads: no more, no less."""

import re
from pathlib import Path

from logyard.broker.config.acted_on import ACTED_ON, AUTHORIZER_ZOOKEEPER
from logyard.broker.config.topic_keys import TOPIC_KEYS

BROKER = Path(__file__).resolve().parents[3] / "broker"

# Turned by BrokerConfig itself into properties (listeners, broker_id, ibp, log_dirs) or into a finer key.
READ_BY_BROKER_CONFIG = {
    "advertised.listeners",
    "broker.id.generation.enable",
    "inter.broker.listener.name",
    "inter.broker.protocol.version",
    "listener.security.protocol.map",
    "listeners",
    "ssl.client.auth",
    "log.dir",
    "log.dirs",
    "node.id",
    "reserved.broker.max.id",
    "security.inter.broker.protocol",
}
# Read by the store's prefix and the rest of the key (tls/stores.py).
READ_BY_STORES = {
    *(f"ssl.{store}.{key}" for store in ("keystore", "truststore") for key in ("type", "location", "password")),
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
}


# Read by the name of the broker's own key for its ZooKeeper (broker.py, security/zookeeper_access.py).
READ_BY_OWN_KEY = {name for name in AUTHORIZER_ZOOKEEPER if name.removeprefix("authorizer.") in ACTED_ON}


def source() -> str:
    tables = set((BROKER / "config").glob("*.py")) - {
        BROKER / "config" / name for name in ("broker.py", "http_side.py")
    }
    files = sorted(set(BROKER.rglob("*.py")) - tables)
    return "\n".join(path.read_text() for path in files)


def test_every_key_that_is_read_is_declared() -> None:
    read = set(re.findall(r'\.(?:int|bool|str|float|list|optional_str)\(\s*"([a-z0-9.]+\.[a-z0-9.]+)"', source()))
    assert read - set(ACTED_ON) == set()
    assert "zookeeper.connect" in read


def test_every_declared_key_is_read() -> None:
    text = source()
    of_topics = {synonym for key in TOPIC_KEYS.values() for synonym in key.synonyms}
    elsewhere = READ_BY_BROKER_CONFIG | READ_BY_STORES | READ_BY_OWN_KEY | of_topics
    assert [name for name in ACTED_ON if name not in elsewhere and f'"{name}"' not in text] == []
