"""The sink's options: what they become, and what is refused."""

import json
from pathlib import Path

import pytest

from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.sink.options import parse

BOOTSTRAP = {"kafka.bootstrap.servers": "a:1,b:2"}


def test_what_is_not_given() -> None:
    options = parse({"topic": "t", **BOOTSTRAP, "checkpointLocation": "/c"}, stream=True)
    assert (options.topic, options.progress_topic, options.write_id, options.epoch) == ("t", "t", None, 0)
    assert (options.timeout_ms, options.compare, options.wait_s) == (900_000, True, 120)
    assert options.client == {"bootstrap.servers": "a:1,b:2"}


def test_everything_given(tmp_path: Path) -> None:
    cluster, security = tmp_path / "cluster.json", tmp_path / "security.json"
    cluster.write_text(json.dumps({"bootstrap": "c:3", "brokers": []}))
    said = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "username": "u",
        "password": "hunter2",
        "ssl_check_hostname": False,
    }
    security.write_text(json.dumps(said))
    given = {
        "progressTopic": "t",
        "clusterFile": str(cluster),
        "security": str(security),
        "writeId": "orders-1",
        "EPOCH": "7",
        "transactionTimeoutMs": "60000",
        "compareContent": "false",
        "verifyWaitS": "9",
        "kafka.compression.type": "zstd",
    }
    options = parse(given, stream=False)
    assert (options.topic, options.progress_topic, options.write_id, options.epoch) == (None, "t", "orders-1", 7)
    assert (options.timeout_ms, options.compare, options.wait_s) == (60_000, False, 9)
    assert options.client == {
        "bootstrap.servers": "c:3",
        "compression.type": "zstd",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "hunter2",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize(
    ("given", "stream", "text"),
    [
        ({}, False, "topic: name it"),
        ({"topic": "t", "foo": "1"}, False, "option foo is not known: choose among topic, progressTopic"),
        ({"topic": "t", "subscribe": "s"}, False, "option subscribe is not known"),
        ({"topic": "t", "epoch": "1"}, True, "a stream's epoch is the number of its micro-batch"),
        ({"topic": "t", "epoch": "-1"}, False, "epoch '-1': a whole number from 0 is expected"),
        ({"topic": "t", "writeId": "a b"}, False, "writeId 'a b': 1 to 200 of the letters"),
        ({"topic": "t", "transactionTimeoutMs": "10"}, False, "a whole number from 1000 is expected"),
        ({"topic": "t", "compareContent": "no"}, False, "compareContent 'no': true or false is expected"),
        ({"topic": "t", "kafka.transactional.id": "x"}, False, "cannot be set: writeId names the write"),
        ({"topic": "t", "kafka.acks": "1"}, False, "kafka.acks cannot be set: it is always all"),
        ({"topic": "t", "clusterFile": "/absent"}, False, "clusterFile /absent: a JSON object is expected"),
    ],
)
def test_what_is_refused(given: dict[str, str], stream: bool, text: str) -> None:
    with pytest.raises(BadOption) as refused:
        parse({**({} if "clusterFile" in given else BOOTSTRAP), **given}, stream=stream)
    assert text in str(refused.value)


def test_null_in_a_file_is_no_value(tmp_path: Path) -> None:
    """It was the text None: a user, a file, a host of that name."""
    cluster, security = tmp_path / "cluster.json", tmp_path / "security.json"
    cluster.write_text(json.dumps({"bootstrap": "c:3"}))
    security.write_text(
        json.dumps({"security_protocol": "SSL", "username": None, "ssl_cafile": None, "ssl_check_hostname": None})
    )
    given = {"topic": "t", "clusterFile": str(cluster), "security": str(security)}
    assert parse(given, stream=False).client == {"bootstrap.servers": "c:3", "security.protocol": "SSL"}


@pytest.mark.parametrize("content", ['{"bootstrap": null}', "{}", '{"bootstrap": ""}', '{"bootstrap": 7}'])
def test_a_cluster_file_that_names_no_brokers(tmp_path: Path, content: str) -> None:
    cluster = tmp_path / "cluster.json"
    cluster.write_text(content)
    with pytest.raises(BadOption, match="names no brokers"):
        parse({"topic": "t", "clusterFile": str(cluster)}, stream=False)


@pytest.mark.parametrize("content", ["null", "[]", '"a"', "{"])
def test_a_file_that_has_no_object(tmp_path: Path, content: str) -> None:
    security = tmp_path / "security.json"
    security.write_text(content)
    with pytest.raises(BadOption, match="a JSON object is expected"):
        parse({"topic": "t", "security": str(security), **BOOTSTRAP}, stream=False)


def test_no_cluster() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers or clusterFile"):
        parse({"topic": "t"}, stream=False)
