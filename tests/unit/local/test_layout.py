import json
from pathlib import Path

import pytest

from logyard.broker.config.broker import BrokerConfig
from logyard.local.errors import LocalError
from logyard.local.layout import BrokerEntry, Layout, Settings


def read(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if not line.startswith("#"))


def test_properties_of_a_broker(tmp_path: Path) -> None:
    settings = Settings(3, config={"log.retention.hours": "1", "offsets.topic.num.partitions": "2"})
    keys = read(Layout(tmp_path).write_properties(1, 19093, "127.0.0.1:2181/yard", settings))
    assert keys["broker.id"] == "1"
    assert keys["listeners"] == keys["advertised.listeners"] == "PLAINTEXT://127.0.0.1:19093"
    assert keys["zookeeper.connect"] == "127.0.0.1:2181/yard"
    assert keys["log.dirs"] == str(tmp_path / "broker-1" / "data")
    assert Path(keys["log.dirs"]).is_dir()
    assert keys["offsets.topic.replication.factor"] == keys["default.replication.factor"] == "3"
    assert "min.insync.replicas" not in keys
    assert (keys["log.retention.hours"], keys["offsets.topic.num.partitions"]) == ("1", "2")


def test_one_broker_replicates_nothing(tmp_path: Path) -> None:
    keys = read(Layout(tmp_path).write_properties(0, 19092, "z:1", Settings(1)))
    of = "default", "offsets.topic", "transaction.state.log"
    assert [keys[f"{topic}.replication.factor"] for topic in of] == ["1", "1", "1"]
    assert keys["transaction.state.log.min.isr"] == "1"


@pytest.mark.parametrize(("brokers", "least"), [(1, "1"), (2, "1"), (3, "2"), (9, "2")])
def test_acknowledged_records_are_on_two_brokers(tmp_path: Path, brokers: int, least: str) -> None:
    given = Settings(brokers, config={"log.retention.hours": "1"})
    keys = read(Layout(tmp_path).write_properties(0, 19092, "z:1", given.durable()))
    assert (keys["min.insync.replicas"], keys["log.retention.hours"]) == (least, "1")
    own = Settings(brokers, config={"min.insync.replicas": "1"}, secure=True)
    assert own.durable() == own


def test_a_broker_takes_these_properties_even_when_strict(tmp_path: Path) -> None:
    path = Layout(tmp_path).write_properties(2, 19092, "127.0.0.1:2181", Settings(3))
    config = BrokerConfig.parse(path.read_text(), strict=True)
    assert config.broker_id == 2
    assert config.warnings == []
    assert config.log_dirs == (str(tmp_path / "broker-2" / "data"),)


def test_backslashes_survive_the_properties_file(tmp_path: Path) -> None:
    settings = Settings(1, config={"log.message.format": "a\\b"})
    assert read(Layout(tmp_path).write_properties(0, 1, "z", settings))["log.message.format"] == "a\\\\b"


def test_several_log_directories(tmp_path: Path) -> None:
    settings = Settings(1, config={"log.dirs": "d1, d2"})
    layout = Layout(tmp_path)
    assert layout.log_dirs(0, settings) == [str(tmp_path / "broker-0/d1"), str(tmp_path / "broker-0/d2")]
    for outside in ("/tmp/elsewhere", "../broker-1/data"):
        with pytest.raises(LocalError, match="below the broker's own folder"):
            layout.log_dirs(0, Settings(1, config={"log.dirs": outside}))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(0), "--brokers 0"),
        (Settings(3, port_base=80), "--port-base 80"),
        (Settings(3, port_base=65534), "--port-base 65534"),
        (Settings(1, config={"broker.id": "4"}), "broker.id"),
        (Settings(1, config={"listeners": "x"}), "listeners"),
    ],
)
def test_what_no_cluster_is_made_of(settings: Settings, said: str) -> None:
    with pytest.raises(LocalError, match=said):
        settings.check()


def test_port_base_gives_every_server_its_port() -> None:
    settings = Settings(3, port_base=19092)
    assert [settings.port_of(broker) for broker in settings.ids] == [19092, 19093, 19094]
    assert settings.zookeeper_port == 19095
    assert Settings(3).zookeeper_port is None


def test_settings_come_back(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(LocalError, match="no cluster was started"):
        layout.settings()
    kept = Settings(2, zookeeper="zk:2181/c", config={"a": "b"})
    layout.keep_settings(kept)
    assert layout.settings() == kept


def test_cluster_json_has_the_agreed_shape(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    entries = [
        BrokerEntry(0, 11, "127.0.0.1", 19092, 8080, ["/d0"]),
        BrokerEntry(1, None, "127.0.0.1", 19093, None, []),
    ]
    layout.write_description("127.0.0.1:2181", entries)
    assert json.loads((tmp_path / "cluster.json").read_text()) == {
        "zookeeper": "127.0.0.1:2181",
        "bootstrap": "127.0.0.1:19092,127.0.0.1:19093",
        "brokers": [
            {"id": 0, "pid": 11, "host": "127.0.0.1", "port": 19092, "http_port": 8080, "log_dirs": ["/d0"]},
            {"id": 1, "pid": None, "host": "127.0.0.1", "port": 19093, "http_port": None, "log_dirs": []},
        ],
    }
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(LocalError, match="cannot be read"):
        layout.read_description()


def test_security_is_not_lost_and_does_not_come_while_it_runs(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert layout.check_security(Settings(1, secure=True), runs=False) is False, "nothing was there"
    layout.keep_settings(Settings(1))
    with pytest.raises(LocalError, match="runs without security: stop it first"):
        layout.check_security(Settings(1, secure=True), runs=True)
    assert layout.check_security(Settings(1, secure=True), runs=False) is True
    layout.keep_settings(Settings(1, secure=True))
    assert layout.check_security(Settings(1, secure=True), runs=True) is False
    with pytest.raises(LocalError, match="is secured: start it with --secure"):
        layout.check_security(Settings(1), runs=False)


def test_a_cluster_of_another_version_is_one_line(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.keep_settings(Settings(1))
    (path,) = [one for one in tmp_path.rglob("*.json") if "brokers" in one.read_text()]
    for content in ({"brokers": 1, "shards": 7}, [1]):
        path.write_text(json.dumps(content))
        with pytest.raises(LocalError, match="of another version"):
            layout.settings()
