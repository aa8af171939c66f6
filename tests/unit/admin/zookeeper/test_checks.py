"""Each rule of `logyard zk check`: found, explained, mended only where nothing can be lost."""

from collections.abc import Callable
from typing import Any

import pytest

from logyard.admin.zookeeper import findings
from logyard.admin.zookeeper.checks import check
from logyard.admin.zookeeper.findings import ZnodeFinding
from logyard.admin.zookeeper.survey import survey
from logyard.broker.znodes.ops import Delete, SetData
from tests.support.tree_znodes import TreeZnodes

START_MS = 1_600_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def znodes() -> TreeZnodes:
    made = TreeZnodes()
    for broker in (1, 2, 3):
        made.broker(broker)
    made.topic("t", {0: [1, 2], 1: [2, 3]})
    made.make("/controller", {"version": 2, "brokerid": 1, "timestamp": "1"}, ephemeral=True)
    made.make("/controller_epoch", b"1")
    made.make("/cluster/id", {"version": "1", "id": "yard"})
    return made


def look(znodes: TreeZnodes, age_ms: int = HOUR_MS) -> list[ZnodeFinding]:
    return check(survey(znodes), START_MS + age_ms)


def kinds(znodes: TreeZnodes, age_ms: int = HOUR_MS) -> list[tuple[str, str]]:
    return [(one.path, one.kind) for one in look(znodes, age_ms)]


def test_a_sound_cluster_has_no_findings(znodes: TreeZnodes) -> None:
    assert look(znodes) == []


def drop(znodes: TreeZnodes, *paths: str) -> None:
    assert all(result.ok for result in znodes.commit([Delete(path) for path in paths]))


def state(leader: int = 1, isr: str = "[1, 2]", epoch: int = 1) -> bytes:
    return b'{"version":1,"leader":%d,"leader_epoch":0,"controller_epoch":%d,"isr":%s}' % (leader, epoch, isr.encode())


def topic(text: str) -> bytes:
    return text.encode()


STATE = "/brokers/topics/t/partitions/0/state"
TOPIC = "/brokers/topics/t"
ASKED = '{"version":1,"partitions":[{"topic":"%s","partition":%d,"replicas":%s}]}'

Damage = Callable[[TreeZnodes], Any]

# (what was done, path, kind, whether --fix mends it)
CASES: list[tuple[Damage, str, str, bool]] = [
    (lambda z: drop(z, "/latest_producer_id_block"), "/latest_producer_id_block", "missing", True),
    (lambda z: z.commit([SetData(TOPIC, b"{")]), TOPIC, "undecodable", False),
    (lambda z: z.commit([SetData(STATE, b"[]")]), STATE, "undecodable", False),
    (lambda z: z.commit([SetData("/config/topics/t", b"x")]), "/config/topics/t", "undecodable", False),
    (lambda z: z.make("/config/users/u", b"x"), "/config/users/u", "undecodable", False),
    (lambda z: z.make("/brokers/ids/9", b"{}"), "/brokers/ids/9", "undecodable", False),
    (lambda z: z.make("/brokers/ids/x", b"{}"), "/brokers/ids/x", "undecodable", False),
    (lambda z: z.commit([SetData("/controller_epoch", b"x")]), "/controller_epoch", "undecodable", False),
    (lambda z: z.commit([SetData("/cluster/id", b"")]), "/cluster/id", "undecodable", False),
    (lambda z: z.make("/admin/reassign_partitions", b"{"), "/admin/reassign_partitions", "undecodable", True),
    (
        lambda z: z.make("/admin/preferred_replica_election", b"{"),
        "/admin/preferred_replica_election",
        "undecodable",
        True,
    ),
    (
        lambda z: z.make("/config/changes/config_change_0000000001", b"?"),
        "/config/changes/config_change_0000000001",
        "undecodable",
        True,
    ),
    (lambda z: drop(z, "/controller"), "/controller", "nobody-controls", False),
    (lambda z: z.commit([SetData("/controller", b'{"brokerid":8}')]), "/controller", "controller-unknown", False),
    (lambda z: z.commit([SetData(STATE, state(epoch=7))]), "/controller_epoch", "epoch-behind", True),
    (lambda z: z.commit([SetData(STATE, state(epoch=2**31 - 1))]), STATE, "impossible-epoch", False),
    (lambda z: drop(z, "/controller_epoch"), "/controller_epoch", "no-epoch", True),
    (lambda z: drop(z, STATE), TOPIC, "half-made", False),
    (lambda z: drop(z, "/config/topics/t"), "/config/topics/t", "no-config", True),
    (lambda z: z.topic("e", {}), "/brokers/topics/e", "no-partitions", False),
    (lambda z: z.topic("n", {0: [1]}), "/brokers/topics/n", "same-topic-id", False),
    (lambda z: z.commit([SetData(STATE, state(leader=3, isr="[3, 1]"))]), STATE, "foreign-leader", False),
    (lambda z: z.commit([SetData(STATE, state(isr="[1, 3]"))]), STATE, "foreign-isr", False),
    (lambda z: z.commit([SetData(STATE, state(isr="[]"))]), STATE, "empty-isr", False),
    (lambda z: z.commit([SetData(STATE, state(isr="[2]"))]), STATE, "leader-not-in-isr", False),
    (lambda z: z.commit([SetData(STATE, state(leader=-1))]), STATE, "not-elected", False),
    (lambda z: drop(z, "/brokers/ids/1"), STATE, "not-elected", False),
    (lambda z: drop(z, "/brokers/ids/1", "/brokers/ids/2"), STATE, "offline", False),
    (
        lambda z: z.make("/brokers/topics/t/partitions/5/state", state()),
        "/brokers/topics/t/partitions/5",
        "orphan",
        False,
    ),
    (
        lambda z: z.make("/admin/reassign_partitions", (ASKED % ("t", 0, "[1, 2]")).encode()),
        "/admin/reassign_partitions",
        "stale-move",
        True,
    ),
    (
        lambda z: z.make("/admin/reassign_partitions", (ASKED % ("none", 0, "[1]")).encode()),
        "/admin/reassign_partitions",
        "stale-move",
        True,
    ),
    (
        lambda z: z.make("/admin/reassign_partitions", (ASKED % ("t", 0, "[1, 9]")).encode()),
        "/admin/reassign_partitions",
        "stuck-move-t-0",
        False,
    ),
    (
        lambda z: z.make("/admin/preferred_replica_election", {"version": 1, "partitions": []}),
        "/admin/preferred_replica_election",
        "stale-election",
        True,
    ),
    (lambda z: z.make("/admin/delete_topics/none"), "/admin/delete_topics/none", "deletion-of-nothing", True),
    (lambda z: z.make("/admin/delete_topics/t"), "/admin/delete_topics/t", "deletion-hangs", False),
    (
        lambda z: z.make("/config/topics/none", {"version": 1, "config": {"retention.ms": "1"}}),
        "/config/topics/none",
        "config-of-nothing",
        True,
    ),
    (
        lambda z: z.make("/isr_change_notification/isr_change_0000000001", {"version": 1, "partitions": []}),
        "/isr_change_notification/isr_change_0000000001",
        "unread-notification",
        True,
    ),
    (
        lambda z: z.make("/log_dir_event_notification/log_dir_event_1", {"version": 1, "broker": 1, "event": 1}),
        "/log_dir_event_notification/log_dir_event_1",
        "unread-dir-failure",
        False,
    ),
    (
        lambda z: z.make("/log_dir_event_notification/log_dir_event_1", {"version": 1, "broker": 9, "event": 1}),
        "/log_dir_event_notification/log_dir_event_1",
        "unread-dir-failure",
        True,
    ),
]


@pytest.mark.parametrize(("damage", "path", "kind", "mends"), CASES, ids=[f"{c[2]}:{c[1]}" for c in CASES])
def test_a_fault_is_found_and_mended_where_it_is_safe(
    znodes: TreeZnodes, damage: Damage, path: str, kind: str, mends: bool
) -> None:
    damage(znodes)
    found = {(one.path, one.kind): one for one in look(znodes)}
    assert (path, kind) in found
    finding = found[path, kind]
    assert finding.can_be_mended == mends
    assert all((finding.wrong, finding.causes, finding.fix))
    if mends:
        assert findings.mend(znodes, finding) is None
        assert (path, kind) not in kinds(znodes)


@pytest.mark.parametrize(
    "damage",
    [
        lambda z: drop(z, STATE),
        lambda z: z.make("/admin/delete_topics/t"),
        lambda z: z.make("/config/topics/soon", {"version": 1, "config": {}}),
        lambda z: z.make("/isr_change_notification/isr_change_1", {"version": 1, "partitions": []}),
        lambda z: z.make("/admin/preferred_replica_election", {"version": 1, "partitions": []}),
        lambda z: z.make("/admin/reassign_partitions", (ASKED % ("t", 0, "[1, 2]")).encode()),
    ],
)
def test_what_a_controller_is_about_to_do_is_no_fault(znodes: TreeZnodes, damage: Damage) -> None:
    damage(znodes)
    assert kinds(znodes, age_ms=1000) == []
    assert kinds(znodes) != []


def test_a_change_meanwhile_is_not_overwritten(znodes: TreeZnodes) -> None:
    znodes.make("/admin/reassign_partitions", b"{")
    [finding] = look(znodes)
    znodes.commit([SetData("/admin/reassign_partitions", (ASKED % ("t", 0, "[3, 1]")).encode())])
    assert findings.mend(znodes, finding) == "bad version"
    assert znodes.content("/admin/reassign_partitions")["partitions"][0]["replicas"] == [3, 1]


def test_an_epoch_is_raised_above_every_states_and_an_election_follows(znodes: TreeZnodes) -> None:
    znodes.commit([SetData(STATE, state(epoch=7))])
    [finding] = look(znodes)
    assert "partitions' states (t-0) are of up to 7" in finding.wrong
    assert findings.mend(znodes, finding) is None
    epoch = znodes.tree.read("/controller_epoch")
    assert epoch is not None
    assert epoch.data == b"7"
    assert znodes.tree.read("/controller") is None


def test_an_impossible_epoch_raises_nothing(znodes: TreeZnodes) -> None:
    """A controller above it would have used up all the numbers."""
    znodes.commit([SetData(STATE, state(epoch=2**31 - 1))])
    drop(znodes, "/controller_epoch")
    missing, impossible = sorted(look(znodes), key=lambda each: each.kind, reverse=True)
    assert (missing.kind, impossible.kind) == ("no-epoch", "impossible-epoch")
    assert findings.mend(znodes, missing) is None
    epoch = znodes.tree.read("/controller_epoch")
    assert epoch is not None
    assert int(epoch.data) < 1000


def test_of_a_request_only_what_is_useless_is_taken_out(znodes: TreeZnodes) -> None:
    partitions = [
        {"topic": "t", "partition": 0, "replicas": [1, 2]},
        {"topic": "t", "partition": 1, "replicas": [1, 2]},
    ]
    znodes.make("/admin/reassign_partitions", {"version": 1, "partitions": partitions})
    [finding] = look(znodes)
    assert findings.mend(znodes, finding) is None
    assert znodes.content("/admin/reassign_partitions")["partitions"] == partitions[1:]


def test_topics_without_an_id(znodes: TreeZnodes) -> None:
    znodes.commit([SetData(TOPIC, b'{"version":2,"partitions":{"0":[1,2],"1":[2,3]}}')])
    assert look(znodes) == []  # nobody has ids: a cluster of before 2.8
    znodes.topic("with", {0: [1]})
    assert kinds(znodes) == [(TOPIC, "no-topic-id")]


def test_moves_that_cannot_end(znodes: TreeZnodes) -> None:
    content = b'{"version":2,"partitions":{"0":[9,1,2],"1":[2,2]},"adding_replicas":{"0":[9]},"removing_replicas":{}}'
    znodes.commit([SetData(TOPIC, content)])
    assert kinds(znodes) == [
        (TOPIC, "bad-replicas-1"),
        (TOPIC, "stuck-move-0"),
        *[(f"{TOPIC}/partitions/1/state", "foreign-isr")],
    ]


def test_two_looks_leave_what_lasts(znodes: TreeZnodes) -> None:
    znodes.make("/admin/delete_topics/none")
    before = look(znodes)
    drop(znodes, "/admin/delete_topics/none", STATE)
    assert findings.lasting(before, look(znodes)) == []
    assert [one.kind for one in findings.lasting(look(znodes), look(znodes))] == ["half-made"]


def test_how_it_is_told() -> None:
    finding = ZnodeFinding("/p", "kind", "w", "c", "f", (Delete("/p", 3),))
    assert finding.lines() == ["error: /p (kind)", "  wrong:  w", "  causes: c", "  --fix: f"]
    assert finding.as_json()["can_be_mended"] is True
    assert ZnodeFinding("/p", "kind", "w", "c", "f").lines()[-1] == "  by hand: f"
