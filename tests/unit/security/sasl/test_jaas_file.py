"""Login modules of listeners in a JAAS file, where a listener has no sasl.jaas.config (Kafka's JaasContext)."""

from pathlib import Path

import pytest

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.security.sasl.login_modules import login_module

FILE = """
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="general-pw" user_a="1";
  org.apache.kafka.common.security.scram.ScramLoginModule required username="s" password="scram-pw";
};
in.KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="own-pw";
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="zk-pw"; };
"""
BASE = "zookeeper.connect=z:2181\nlisteners=IN://h:9,OUT://h:10\ninter.broker.listener.name=IN\n"
BASE += "listener.security.protocol.map=IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jaas.conf"
    path.write_text(FILE)
    return path


def password(text: str, listener: str, mechanism: str = "PLAIN") -> str | None:
    module = login_module(BrokerConfig.parse(BASE + text).listener(listener), mechanism)
    return None if module is None else module.options["password"]


@pytest.mark.parametrize("by_variable", [True, False])
def test_the_listeners_section_is_before_the_general_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    text = f"logyard.jaas.config.file={file}\n"
    if by_variable:
        monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={file}")
        text = ""
    assert password(text, "IN") == "own-pw"
    assert password(text, "OUT") == "general-pw"
    assert password(text, "OUT", "SCRAM-SHA-256") == "scram-pw"
    # The section of the listener is the only one that counts, as in Kafka.
    assert password(text, "IN", "SCRAM-SHA-256") is None
    own = 'listener.name.in.plain.sasl.jaas.config=x.PlainLoginModule required password="in-the-settings";\n'
    assert password(text + own, "IN") == "in-the-settings"


def test_a_file_without_the_brokers_sections_has_no_module(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(FILE.replace("KafkaServer", "Server"))
    assert password(f"logyard.jaas.config.file={path}\n", "IN") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('x.PlainLoginModule required password="a"; x.PlainLoginModule required password="b";', "one login module"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "PlainLoginModule is expected"),
    ],
)
def test_a_listener_has_one_module_of_its_mechanism(text: str, told: str) -> None:
    """No other class is ever run, so that none has to be forbidden."""
    with pytest.raises(ValueError, match=told):
        password(f"listener.name.in.plain.sasl.jaas.config={text}\n", "IN")


def test_without_a_file_there_is_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    assert password("", "IN") is None


def test_a_file_that_cannot_be_read_is_told_without_its_secrets(file: Path) -> None:
    for content, said in ((FILE.rpartition("}")[0], "the text ends"), (None, "No such file")):
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        with pytest.raises(ValueError, match=f"the JAAS file {file}: .*{said}") as caught:
            password(f"logyard.jaas.config.file={file}\n", "IN")
        assert "-pw" not in str(caught.value)
