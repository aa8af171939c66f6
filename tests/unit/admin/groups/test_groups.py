"""Tables and scenarios of kafka-consumer-groups."""

import pytest

from logyard.admin.groups import groups, reset_scenarios
from logyard.admin.groups.groups import BadGroups, Group, GroupListing, Member
from logyard.admin.groups.reset_scenarios import Scenario
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ANN = Member("ann-1", "ann", "/10.0.0.1", "", (T1, T0))
BOB = Member("bob-1", "bob", "/10.0.0.2")


def test_offsets() -> None:
    group = Group("g", groups.STABLE, (BOB, ANN))
    rows = groups.offset_rows(group, {T0: 5, U0: 7}, {T0: 9, T1: 3})
    assert [line.rstrip() for line in groups.offsets_table("g", rows)] == [
        "",
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "
        "HOST            CLIENT-ID",
        "g               t               0          5               9               4               ann-1           "
        "/10.0.0.1       ann",
        "g               t               1          -               3               -               ann-1           "
        "/10.0.0.1       ann",
        "g               u               0          7               -               -               -               "
        "-               -",
    ]


def test_members() -> None:
    group = Group("g", groups.STABLE, (ANN, BOB))
    assert groups.members_table(group, verbose=False) == [
        "",
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ",
        "g               ann-1           /10.0.0.1       ann             2               ",
        "g               bob-1           /10.0.0.2       bob             0               ",
    ]
    static = Group("g", groups.STABLE, (Member("c", "i", "h", "static", (U0, T1, T0)), BOB))
    lines = groups.members_table(static, verbose=True)
    assert lines[1].split() == [
        "GROUP",
        "CONSUMER-ID",
        "GROUP-INSTANCE-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
        "ASSIGNMENT",
    ]
    assert lines[2].endswith(" 3               (0), (0,1)")
    assert lines[3].endswith(" 0               -")


def test_states_and_lists() -> None:
    group = Group("g", groups.EMPTY, (), "range", "h:9092", 1)
    assert [line.split() for line in groups.states_table(group)[1:]] == [
        ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        ["g", "h:9092", "(1)", "range", "Empty", "0"],
    ]
    assert group.notice == "Consumer group 'g' has no active members."
    assert Group("g", "PreparingRebalance").notice == "Warning: Consumer group 'g' is rebalancing."
    assert Group("g", groups.STABLE).notice is None
    listed = groups.listing_table([GroupListing("g", "Classic", "Stable")], with_type=True, with_state=True)
    assert [line.split() for line in listed] == [["GROUP", "TYPE", "STATE"], ["g", "Classic", "Stable"]]
    assert listed[1].startswith("g" + " " * 25)
    assert groups.parse_states("stable, Empty") == ["Stable", "Empty"]
    with pytest.raises(BadGroups, match="Valid states are"):
        groups.parse_states("odd")


@pytest.fixture
def client() -> MemoryClient:
    cluster = MemoryCluster({0: None})
    cluster.start_offsets = {T0: 2, T1: 0}
    cluster.end_offsets = {T0: 10, T1: 4}
    cluster.group_commits = {"g": {T0: 5}}
    return MemoryClient(cluster)


@pytest.mark.parametrize(
    ("scenario", "found"),
    [
        (Scenario(to_earliest=True), {T0: 2, T1: 0}),
        (Scenario(to_latest=True), {T0: 10, T1: 4}),
        (Scenario(to_current=True), {T0: 5, T1: 4}),
        (Scenario(to_offset=7), {T0: 7, T1: 4}),
        (Scenario(to_offset=1), {T0: 2, T1: 1}),
        (Scenario(plan={"g": {T0: 99}}), {T0: 10}),
    ],
)
def test_scenarios(client: MemoryClient, scenario: Scenario, found: dict[TopicPartition, int]) -> None:
    warned: list[str] = []
    assert reset_scenarios.prepare(client, "g", [T0, T1], scenario, warned.append) == found
    if scenario.to_offset == 1:
        assert warned == [
            "New offset (1) is lower than earliest offset for topic partition t-0. Value will be set to 2"
        ]


def test_shifting_needs_something_committed(client: MemoryClient) -> None:
    assert reset_scenarios.prepare(client, "g", [T0], Scenario(shift_by=-2), print) == {T0: 3}
    with pytest.raises(BadGroups, match="no current committed offset"):
        reset_scenarios.prepare(client, "g", [T0, T1], Scenario(shift_by=1), print)
    with pytest.raises(BadGroups, match="No reset plan for group h"):
        reset_scenarios.prepare(client, "h", [], Scenario(plan={"g": {}}), print)


def test_an_empty_partition_has_no_record_of_then(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    real = client.offsets
    monkeypatch.setattr(
        client, "offsets", lambda tps, at=-1: {tp: -1 if tp == T1 else 6 for tp in tps} if at > 0 else real(tps, at)
    )
    warned: list[str] = []
    assert reset_scenarios.prepare(client, "g", [T0, T1], Scenario(timestamp=1000), warned.append) == {T0: 6, T1: 4}
    assert warned == ["Warn: Partition 1 from topic t is empty. Falling back to latest known offset."]


def test_topics_and_partitions() -> None:
    assert reset_scenarios.parse_topics(["t", "u:0", "t:1"], lambda topic: 2) == [T0, T1, U0]
    with pytest.raises(BadGroups, match="Invalid partition 'x'"):
        reset_scenarios.parse_topics(["t:x"], lambda topic: 2)


def test_times() -> None:
    assert reset_scenarios.parse_time("1970-01-01T00:00:01.500") == 1500
    assert reset_scenarios.parse_time("1970-01-01T01:00:00+01:00") == 0
    assert reset_scenarios.parse_duration("P1DT2H3M4.5S") == 93_784_500
    assert reset_scenarios.parse_duration("-PT1S") == -1000
    for wrong in ("P", "PT", "1D", "P1M"):
        with pytest.raises(BadGroups, match="--by-duration"):
            reset_scenarios.parse_duration(wrong)
    with pytest.raises(BadGroups, match="--to-datetime"):
        reset_scenarios.parse_time("yesterday")


def test_csv_there_and_back() -> None:
    offsets = {"g": {T1: 4, T0: 2}}
    assert reset_scenarios.write_csv(offsets, with_group=False) == "t,0,2\nt,1,4\n"
    assert reset_scenarios.write_csv(offsets, with_group=True) == "g,t,0,2\ng,t,1,4\n"
    assert reset_scenarios.parse_csv("t,0,2\n\nt,1,4\n", ["g"]) == offsets
    assert reset_scenarios.parse_csv("g,t,0,2\ng,t,1,4\n", []) == offsets
    for wrong in ("t,0,2", "g,t,x,2", "g"):
        with pytest.raises(BadGroups, match="group,topic,partition,offset is expected"):
            reset_scenarios.parse_csv(wrong, [])
