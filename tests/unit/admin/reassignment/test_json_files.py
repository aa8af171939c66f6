"""The files of kafka-reassign-partitions, read and written."""

import json

import pytest

from logyard.admin.reassignment import json_files
from logyard.admin.reassignment.json_files import BadReassignment, Replica
from logyard.broker.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def entry(**fields: object) -> str:
    return json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], **fields}]})


def test_targets_with_and_without_directories() -> None:
    assert json_files.parse_targets(entry()) == ([(T0, (1, 2))], {})
    assert json_files.parse_targets(entry(log_dirs=["any", "/b"])).log_dirs == {Replica("t", 0, 2): "/b"}
    assert json_files.parse_targets("{}") == ([], {})  # the version may be left out


def test_what_is_written_is_one_line_and_can_be_read() -> None:
    text = json_files.render({T1: (2, 3), T0: (1, 2)})
    assert text == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"t","partition":1,"replicas":[2,3],"log_dirs":["any","any"]}]}'
    )
    assert json_files.parse_execution(text) == ({T0: (1, 2), T1: (2, 3)}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no valid JSON"),
        ("[]", "a JSON object"),
        ('{"version":2}', "Not supported version field value 2"),
        ('{"partitions":{}}', "no list"),
        ('{"partitions":[]}', "Partition reassignment list cannot be empty"),
        (entry(replicas=[]), "Partition replica list cannot be empty"),
        (entry(replicas=[1, 1]), "may not contain duplicate entries: t-0 contains multiple entries for 1"),
        (entry(replicas=["1"]), "topic, partition and a list of replicas"),
        (entry(replicas="12"), "topic, partition and a list of replicas"),
        (entry(replicas=[1, 2, 3], log_dirs="any"), "topic, partition and a list of replicas"),
        (entry(partition=True), "topic, partition and a list of replicas"),
        (entry(log_dirs=["any"]), "is different from size of log dirs list"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}',
            "contains duplicate topic partitions: t-0",
        ),
    ],
)
def test_what_cannot_be_carried_out(text: str, said: str) -> None:
    with pytest.raises(BadReassignment, match=said):
        json_files.parse_execution(text)


def test_topics_and_brokers() -> None:
    assert json_files.parse_topics('{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}') == ["a", "b"]
    assert json_files.parse_brokers("2,0") == [2, 0]
    for text in ('{"topics":[{"topic":"a"},{"topic":"a"}]}', '{"topics":[{}]}', '{"topics":["a"]}', "{}"):
        with pytest.raises(BadReassignment):
            json_files.parse_topics(text)
    for text in ("", "1,x", "1,1"):
        with pytest.raises(BadReassignment):
            json_files.parse_brokers(text)
