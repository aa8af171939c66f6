"""One cluster, both kinds of broker on one ZooKeeper: either controls the other, leads it and follows it.

In plain text, and secured: SASL_SSL with SCRAM between brokers and for clients, and ACLs that the clients need.
"""

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition as Ours
from tests.reference.both_kinds import BothKinds, pause
from tests.support import kafka, secured
from tests.support.load import Load
from tests.support.real_cluster import eventually

# A whole scenario of tools, each a JVM, or of brokers that die and come back: minutes on a loaded machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", params=["KKO", "OOK", "KKO-secured", "OOK-secured"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothKinds]:
    kafka.jars_or_skip()
    kinds, _, is_secured = request.param.partition("-")
    with running(tmp_path_factory.mktemp(request.param), kinds, bool(is_secured)) as both:
        yield both


@contextmanager
def running(home: Path, kinds: str, is_secured: bool) -> Iterator[BothKinds]:
    if not is_secured:
        with kafka.running(home, kinds) as cluster, closing(BothKinds(cluster, kinds)) as both:
            yield both
        return
    with secured.running(home, kinds, between="SCRAM-SHA-512") as world:
        # alice is no super user: each of these ACLs is needed.
        for prefix in ("t-", "survivor-", "moved"):
            for operation in ("Read", "Write"):
                world.allow("alice", "Topic", prefix, operation, prefixed=True)
        world.allow("alice", "Group", "t-", "Read", prefixed=True)
        world.allow("alice", "Group", "unused", "Describe")  # librdkafka looks for the coordinator of any group
        with closing(BothKinds(world.reached_by("alice"), kinds)) as both:
            yield both


@pytest.fixture(params=["K", "O"])
def controlled(both: BothKinds, request: pytest.FixtureRequest) -> Iterator[BothKinds]:
    """The cluster under a controller of that kind, which is the same one to the end."""
    before = both.controller_of(request.param), both.cluster.controller()[1]
    yield both
    assert both.cluster.controller() == before


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def create(both: BothKinds, topic: str, placed: list[list[int]], **config: str) -> None:
    """Make a topic with those replicas, the first of each to lead."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    both.admin.create_topic(NewTopic(topic, assignment=dict(enumerate(placed)), configs=keys))
    eventually(lambda: both.cluster.isrs_full(topic), "led and in sync")


def replicas(both: BothKinds, topic: str) -> dict[int, list[int]]:
    return {partition: list(view.replicas) for partition, view in both.cluster.describe(topic).items()}


LED_BY_EACH = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def test_each_leads_and_follows_the_other(controlled: BothKinds, topic: str) -> None:
    create(controlled, topic, LED_BY_EACH, segment_bytes="20000")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        sent = [(str(n).encode(), f"{codec} {n}".encode() * 10) for n in range(600)]
        assert len(controlled.cluster.produce(topic, sent, **{"compression.type": codec})) == 600
    assert len(controlled.cluster.consume(topic, 3000)) == 3000
    controlled.settled(topic)


def test_controller_of_either_kind_grows_moves_and_deletes(controlled: BothKinds, topic: str) -> None:
    create(controlled, topic, [[0], [1], [2]])
    for round_ in range(3):
        controlled.cluster.produce(topic, [(str(n).encode(), f"{round_} {n}".encode()) for n in range(300)])
        # Each partition goes round all brokers, so that each kind hands over to each.
        targets = {Ours(topic, p): [(p + round_ + 1) % 3] for p in range(3)}
        refused = controlled.admin.alter_reassignments(targets)
        assert all(problem is None for problem in refused.values())
        eventually(lambda: not controlled.admin.list_reassignments(), "moved", 60)
        eventually(lambda t=targets: replicas(controlled, topic) == {tp.partition: to for tp, to in t.items()}, "told")
    eventually(lambda: [set(controlled.cluster.replica_dirs(topic, p)) for p in range(3)] == [{0}, {1}, {2}], "files")
    assert len(controlled.cluster.consume(topic, 900)) == 900

    widened = {Ours(topic, p): LED_BY_EACH[p] for p in range(3)}
    assert not any(controlled.admin.alter_reassignments(widened).values())
    eventually(lambda: not controlled.admin.list_reassignments(), "replicated", 60)
    controlled.settled(topic)

    controlled.admin.add_partitions(topic, 5, [[1, 0, 2], [2, 1, 0]])
    eventually(lambda: len(controlled.cluster.describe(topic)) == 5, "five partitions")
    controlled.settled(topic)

    controlled.admin.delete_topic(topic)
    eventually(lambda: not any(controlled.cluster.replica_dirs(topic, p) for p in range(5)), "files gone", 60)
    with controlled.cluster.zookeeper() as zk:
        eventually(lambda: zk.get_children("/admin/delete_topics") == [], "no request left")
        assert topic not in zk.get_children("/brokers/topics")


def test_preferred_leaders_settings_and_deleted_records(controlled: BothKinds, topic: str) -> None:
    create(controlled, topic, LED_BY_EACH)
    assert len(controlled.cluster.produce(topic, [(str(n).encode(), b"%d" % n) for n in range(900)])) == 900
    turned = {Ours(topic, p): [*LED_BY_EACH[p][1:], LED_BY_EACH[p][0]] for p in range(3)}
    assert not any(controlled.admin.alter_reassignments(turned).values())
    eventually(lambda: not controlled.admin.list_reassignments(), "turned")
    assert not any(controlled.admin.elect_leaders([Ours(topic, p) for p in range(3)]).values())
    eventually(lambda: all(controlled.leads(topic, p) == turned[Ours(topic, p)][0] for p in range(3)), "led anew")

    first_ten = {Ours(topic, p): 10 for p in range(3)}
    # A new leader's high watermark is one fetch late.
    eventually(lambda: min(controlled.admin.offsets(list(first_ten)).values()) >= 10, "high watermarks")
    deleted = controlled.admin.delete_records(first_ten)
    assert set(deleted.values()) == {10}
    controlled.admin.alter_topic_configs(topic, {"max.message.bytes": "2000"})
    admin = controlled.cluster.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    eventually(
        lambda: admin.describe_configs([resource])[resource].result(20)["max.message.bytes"].value == "2000", "altered"
    )
    # Whoever leads refuses what is too large, soon after: each has its own watch on the change.
    eventually(lambda: controlled.cluster.produce(topic, [(None, b"x" * 5000)] * 6) == {}, "refused by all")
    assert len(controlled.cluster.produce(topic, [(str(n).encode(), b"small %d" % n) for n in range(90)])) == 90
    controlled.settled(topic)


def test_follower_that_has_more_than_the_new_leader_cuts_its_log(both: BothKinds, topic: str) -> None:
    """What only the dead leader had goes; both ways round, by the leader epochs that a Fetch carries."""
    ours, theirs = both.of("O")[0], both.of("K")[0]
    third = 3 - ours - theirs
    both.controller_of(both.kinds[third])
    for first, second in ((ours, theirs), (theirs, ours)):
        name = f"{topic}-{first}"
        create(both, name, [[first, second]])
        assert len(both.cluster.produce(name, [(None, b"kept %d" % n) for n in range(99)])) == 99
        # Connected and logged in before the follower stands still: a Fetch waits for half a second only.
        producer = Producer({**both.cluster.client_options, "acks": 1, "linger.ms": 0})
        producer.produce(name, b"kept 99")
        assert producer.flush(30) == 0
        both.settled(name)
        with both.frozen([second]):
            # The follower's waiting Fetch takes this along; what follows it has the leader alone.
            producer.produce(name, b"taken")
            assert producer.flush(30) == 0
            pause(1.5)  # a Fetch that the leader has not read yet must not take along what follows
            assert len(both.cluster.produce(name, [(None, b"gone %d" % n) for n in range(100)], acks=1)) == 100
            both.kill(first)
        eventually(lambda n=name, s=second: both.leads(n) == s, "the other leads", 60)
        later = both.cluster.produce(name, [(None, b"later %d" % n) for n in range(50)])
        both.start(first)
        both.settled(name)
        values = [m.value() for m in both.cluster.consume(name, 151)]
        assert len(later) == 50
        assert [v for v in values if v.startswith(b"gone")] == []
        assert len(values) == 151


def test_group_keeps_its_offsets_when_its_coordinator_moves_to_the_other_kind(both: BothKinds, topic: str) -> None:
    create(both, topic, LED_BY_EACH)
    both.cluster.produce(topic, [(str(n).encode(), b"v") for n in range(300)])
    conf = {**both.cluster.client_options, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    committed = {}
    for number in range(8):  # enough names to fall on every partition of the offsets topic
        group = f"{topic}-{number}"
        member = Consumer({**conf, "group.id": group})
        member.subscribe([topic])
        eventually(lambda m=member: len([r for r in m.consume(300, 1.0) if r.error() is None]) > 0, "read", 60)
        offsets = [TopicPartition(topic, p, 10 * number + p) for p in range(3)]
        member.commit(offsets=offsets, asynchronous=False)
        member.close()
        committed[group] = [tp.offset for tp in offsets]
    both.settled("__consumer_offsets")
    moved = {
        Ours("__consumer_offsets", p): [*view.replicas[1:], view.replicas[0]]
        for p, view in both.cluster.describe("__consumer_offsets").items()
    }
    for _ in range(2):  # every partition is led by all three brokers in turn
        assert not any(both.admin.alter_reassignments(moved).values())
        eventually(lambda: not both.admin.list_reassignments(), "turned")
        elected = both.admin.elect_leaders(list(moved)).values()
        assert {problem.code for problem in elected if problem} <= {ErrorCode.ELECTION_NOT_NEEDED}
        for group, expected in committed.items():
            reader = Consumer({**conf, "group.id": group})
            asked = [TopicPartition(topic, p) for p in range(3)]
            eventually(
                lambda r=reader, a=asked, e=expected: [tp.offset for tp in r.committed(a, timeout=10)] == e,
                f"offsets of {group}",
            )
            reader.close()
        moved = {tp: [*replicas[1:], replicas[0]] for tp, replicas in moved.items()}


@pytest.mark.parametrize("kind", ["K", "O"])
def test_controllership_moves_under_load_and_nothing_acknowledged_is_lost(both: BothKinds, kind: str) -> None:
    topic = f"survivor-{uuid.uuid4().hex[:8]}"
    create(both, topic, LED_BY_EACH * 2, min_insync_replicas="2")
    before = both.controller_of(kind)
    load = Load(both.cluster, topic)
    load.start()
    eventually(lambda: len(load.acknowledged) > 500, "load runs")
    both.kill(before)
    after = both.controller(unlike=before)
    if len(both.of(kind)) == 1:
        assert both.kinds[after] != kind
    eventually(
        lambda: all(p.leader not in (before, -1) for p in both.cluster.describe(topic).values()),
        "led by the living",
        60,
    )
    so_far = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > so_far + 500, "load goes on", 60)
    both.start(before)
    eventually(lambda: both.cluster.isrs_full(topic), "back in every ISR", 60)
    load.stop()
    assert load.lost() == {}
    both.settled(topic)


@pytest.mark.parametrize("kind", ["K", "O"])
def test_clean_stop_hands_over_to_the_other_kind(both: BothKinds, topic: str, kind: str) -> None:
    """ControlledShutdown: asked by one kind, granted by the other."""
    leaving = both.of(kind)[0]
    both.controller_of("O" if kind == "K" else "K")
    create(both, topic, LED_BY_EACH)
    load = Load(both.cluster, topic)
    load.start()
    eventually(lambda: len(load.acknowledged) > 200, "load runs")
    both.stop(leaving)
    assert all(p.leader not in (leaving, -1) for p in both.cluster.describe(topic).values())
    clean = list(both.cluster.directory.glob(f"broker-{leaving}/*/.kafka_cleanshutdown"))
    assert clean
    both.start(leaving)
    eventually(lambda: both.cluster.isrs_full(topic), "back in every ISR", 60)
    load.stop()
    assert load.lost() == {}
    both.settled(topic)


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "secured"])
@pytest.mark.parametrize("unclean", [False, True], ids=["clean", "killed"])
def test_brokers_are_replaced_one_by_one_in_place(tmp_path: Path, unclean: bool, is_secured: bool) -> None:
    """The way over, and the way back: under load every broker of Kafka's becomes ours on its own files, then again."""
    kafka.jars_or_skip()
    topic = "moved"
    with running(tmp_path / "cluster", "KKK", is_secured) as both:
        cluster = both.cluster
        create(both, topic, LED_BY_EACH, min_insync_replicas="2", segment_bytes="200000")
        load = Load(cluster, topic)
        load.start()
        for kind in ("O", "K"):
            for broker in range(3):
                so_far = len(load.acknowledged)
                (both.kill if unclean else both.stop)(broker)
                both.turn(broker, kind)
                both.start(broker)
                eventually(lambda: cluster.isrs_full(topic), f"{broker} as {kind} in every ISR", 60)
                eventually(lambda n=so_far: len(load.acknowledged) > n + 100, "load goes on", 60)
            assert both.kinds == kind * 3
        load.stop()
        assert load.lost() == {}
        both.settled(topic)
