import pytest

from logyard.admin.cluster.snapshot import ConfigValue, PartitionView, TopicView
from logyard.broker.model import Assignment, TopicPartition
from logyard.cli.topics.brokers import topic_lines
from logyard.cli.topics.text import PartitionLine, Report, TopicLines, describe, matching, parse_assignment
from logyard.local.errors import LocalError

ID = "A" * 22
FULL = PartitionLine(0, leader=1, replicas=(1, 2, 0), isr=(1, 2, 0))
SHORT = PartitionLine(1, leader=2, replicas=(2, 0, 1), isr=(2,))
LOST = PartitionLine(2, leader=-1, replicas=(0, 1, 2), isr=(0,))
FLIGHTS = TopicLines("flights", [FULL, SHORT, LOST], {"cleanup.policy": "compact"}, ID, min_isr=2)


def test_the_whole_description() -> None:
    assert describe([FLIGHTS], Report.ALL, [0, 1, 2]) == [
        f"Topic: flights\tTopicId: {ID}\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: cleanup.policy=compact",
        "\tTopic: flights\tPartition: 0\tLeader: 1\tReplicas: 1,2,0\tIsr: 1,2,0\tElr: N/A\tLastKnownElr: N/A",
        "\tTopic: flights\tPartition: 1\tLeader: 2\tReplicas: 2,0,1\tIsr: 2\tElr: N/A\tLastKnownElr: N/A",
        "\tTopic: flights\tPartition: 2\tLeader: none\tReplicas: 0,1,2\tIsr: 0\tElr: N/A\tLastKnownElr: N/A",
    ]


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        (Report.UNDER_REPLICATED, [1, 2]),
        (Report.UNAVAILABLE, [1, 2]),  # broker 2 does not live
        (Report.UNDER_MIN_ISR, [1, 2]),
        (Report.AT_MIN_ISR, []),
    ],
)
def test_reports_show_partitions_only(report: Report, shown: list[int]) -> None:
    lines = describe([FLIGHTS], report, live=[0, 1])
    assert [int(line.split("Partition: ")[1].split("\t")[0]) for line in lines] == shown


def test_at_min_isr() -> None:
    assert len(describe([TopicLines("t", [FULL], min_isr=3)], Report.AT_MIN_ISR, [1])) == 1


def test_overrides_show_only_topics_that_have_some() -> None:
    lines = describe([FLIGHTS, TopicLines("plain", [FULL])], Report.OVERRIDES, [])
    assert len(lines) == 1
    assert lines[0].startswith("Topic: flights\t")


def test_a_running_reassignment_is_shown_and_does_not_count_as_under_replicated() -> None:
    moving = PartitionLine(0, 1, replicas=(1, 2, 0), isr=(1, 2), adding=(0,), removing=(2,))
    lines = describe([TopicLines("t", [moving])], Report.ALL, [1])
    assert lines[0] == "Topic: t\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: "
    assert "\tIsr: 1,2\tAdding Replicas: 0\tRemoving Replicas: 2\tElr" in lines[1]
    assert describe([TopicLines("t", [moving])], Report.UNDER_REPLICATED, [1]) == []


def test_a_topic_that_is_being_deleted() -> None:
    lines = describe([TopicLines("t", [FULL], deleting=True)], Report.ALL, [1])
    assert [line.endswith("\tMarkedForDeletion: true") for line in lines] == [True, True]


def test_patterns() -> None:
    names = ["b", "a", "flights", "flights-old", "__consumer_offsets"]
    assert matching(None, names) == sorted(names)
    assert matching(None, names, exclude_internal=True) == ["a", "b", "flights", "flights-old"]
    assert matching("flights", names) == ["flights"]
    assert matching("flights.*,a", names) == ["a", "flights", "flights-old"]
    with pytest.raises(LocalError, match="invalid regular expression"):
        matching("(", names)


def test_assignments() -> None:
    assert parse_assignment("0:1,1:2,2:0") == {0: (0, 1), 1: (1, 2), 2: (2, 0)}
    for text, said in [("0:1,1", "another number"), ("0:0", "twice"), ("0:x", "write it as"), ("", "write it as")]:
        with pytest.raises(LocalError, match=said):
            parse_assignment(text)


def test_a_snapshot_becomes_lines() -> None:
    view = TopicView("t", (PartitionView(0, 1, (1, 2), (1,)),), topic_id="x" * 22)
    configs = {
        "cleanup.policy": ConfigValue("compact", "DYNAMIC_TOPIC_CONFIG"),
        "segment.bytes": ConfigValue("1000", "STATIC_BROKER_CONFIG"),
        "retention.ms": ConfigValue("1", "DEFAULT_CONFIG"),
        "min.insync.replicas": ConfigValue("2", "DEFAULT_CONFIG"),
    }
    found = topic_lines(view, configs, {TopicPartition("t", 0): Assignment((1, 2), adding=(2,))})
    assert found.configs == {"cleanup.policy": "compact", "segment.bytes": "1000"}
    assert found.min_isr == 2
    assert found.partitions == [PartitionLine(0, 1, (1, 2), (1,), adding=(2,), removing=())]
