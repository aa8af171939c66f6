"""Kafka's command-line tools: the same steps on three brokers of ours and on three of Kafka's print the same.

They are the Java client as well: every tool is an AdminClient, a KafkaProducer or a KafkaConsumer with its defaults.
"""

import json
from collections.abc import Iterator

import pytest

from tests.reference.steps import Side, Step, both
from tests.support import kafka
from tests.support.real_cluster import eventually

# A whole scenario of tools, each a JVM, or of brokers that die and come back: minutes on a loaded machine.
pytestmark = pytest.mark.timeout(900)

OFFSETS_PLACED = "0:1:2,1:2:0,2:0:1,0:2:1 --config cleanup.policy=compact"
TO = "--bootstrap-server {bootstrap}"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Three brokers of ours and three of Kafka's, each kind on a ZooKeeper of its own, with the same settings."""
    kafka.jars_or_skip()
    home = tmp_path_factory.mktemp("tools")
    with kafka.running(home / "ours", "OOO") as ours, kafka.running(home / "kafka", "KKK") as theirs:
        made = []
        for name, cluster in (("ours", ours), ("kafka", theirs)):
            (home / f"{name}-files").mkdir()
            made.append(Side(name, cluster, home / f"{name}-files"))
            # Placed by hand, not by chance: then a group has the same coordinator on both.
            offsets = Step("topics", f"{TO} --create --topic __consumer_offsets --replica-assignment {OFFSETS_PLACED}")
            made[-1].run(offsets)
        yield made[0], made[1]


def same(sides: tuple[Side, Side], *steps: Step) -> None:
    differences = both(sides, steps)
    assert not differences, "\n\n".join(differences)


def write(sides: tuple[Side, Side], name: str, content: object) -> str:
    for side in sides:
        (side.folder / name).write_text(json.dumps(content))
    return "{dir}/" + name


def test_topics(sides: tuple[Side, Side]) -> None:
    create = f"{TO} --create --topic"
    same(
        sides,
        Step("topics", f"{create} a --replica-assignment 0:1:2,1:2:0,2:0:1 --config retention.ms=86400000"),
        Step("topics", f"{create} a --partitions 1 --replication-factor 1", refused=True),
        Step("topics", f"{create} b --partitions 1 --replication-factor 4", refused=True),
        Step("topics", f"{create} s/x --partitions 1 --replication-factor 1", refused=True),
        Step("topics", f"{create} x --partitions 1 --replication-factor 1 --config no.such=1", refused=True),
        Step("topics", f"{create} b.c --replica-assignment 0"),
        Step("topics", f"{create} b_c --replica-assignment 0", refused=True),
        Step("topics", f"{TO} --list"),
        Step("topics", f"{TO} --describe --topic a"),
        Step("topics", f"{TO} --describe --topic nosuch", refused=True),
        Step("topics", f"{TO} --alter --topic a --partitions 2", refused=True),
        Step("topics", f"{TO} --alter --topic a --partitions 3", refused=True),
        Step("topics", f"{TO} --alter --topic a --partitions 4 --replica-assignment 0:1:2,1:2:0,2:0:1,1:0:2"),
        Step("topics", f"{TO} --describe --topic a"),
        Step("topics", f"{TO} --describe --topics-with-overrides"),
        Step("topics", f"{TO} --describe --at-min-isr-partitions"),
        Step("topics", f"{TO} --delete --topic b.c"),
        Step("topics", f"{TO} --list"),
    )


def test_levels_of_loggers(sides: tuple[Side, Side]) -> None:
    """The loggers are others: Kafka's are classes of Java; `root` is in both."""
    alter = f"{TO} --alter --entity-type broker-loggers --entity-name 0"
    same(
        sides,
        Step("configs", f"{alter} --add-config root=ERROR"),
        Step("configs", f"{alter} --add-config root=LOUD", refused=True),
        Step("configs", f"{alter} --add-config no.such=DEBUG", refused=True),
        Step("configs", f"{alter} --delete-config root", refused=True),
        Step("configs", f"{TO} --describe --entity-type broker-loggers", refused=True),
    )
    for side in sides:
        said = side.run(Step("configs", f"{TO} --describe --entity-type broker-loggers --entity-name 0"))
        assert "Dynamic configs for broker-logger 0 are:" in said
        assert "root=ERROR sensitive=false synonyms={}" in said.splitlines()
    same(sides, Step("configs", f"{alter} --add-config root=INFO"))


def test_configs(sides: tuple[Side, Side]) -> None:
    of_topic, of_broker = "--entity-type topics --entity-name c", "--entity-type brokers --entity-name 0"
    every, own = "--entity-type brokers --entity-default", "listener.name.plaintext"
    same(
        sides,
        Step("topics", f"{TO} --create --topic c --replica-assignment 0 --config retention.ms=86400000"),
        Step("configs", f"{TO} --describe {of_topic}"),
        Step("configs", f"{TO} --alter {of_topic} --add-config cleanup.policy=compact,segment.bytes=1048576"),
        Step("configs", f"{TO} --alter {of_topic} --add-config segment.bytes=abc", refused=True),
        Step("configs", f"{TO} --alter {of_topic} --add-config no.such=1", refused=True),
        Step("configs", f"{TO} --alter {of_topic} --delete-config cleanup.policy"),
        Step("configs", f"{TO} --describe {of_topic}"),
        Step("configs", f"{TO} --alter {of_broker} --add-config log.cleaner.threads=2"),
        Step("configs", f"{TO} --describe {of_broker}"),
        Step("configs", f"{TO} --alter {every} --add-config log.retention.ms=1000000"),
        Step("configs", f"{TO} --describe {every}"),
        Step("configs", f"{TO} --alter {every} --delete-config log.retention.ms"),
        Step("configs", f"{TO} --alter {of_broker} --add-config zookeeper.connect=x", refused=True),
        Step("configs", f"{TO} --alter {of_broker} --add-config {own}.max.connections=50,max.connections=900"),
        Step("configs", f"{TO} --describe {of_broker}"),
        Step("configs", f"{TO} --alter {of_broker} --add-config {own}.max.connections=0", refused=True),
        Step("configs", f"{TO} --alter {of_broker} --add-config log.retention.ms=x", refused=True),
        Step("configs", f"{TO} --alter {every} --add-config {own}.max.connection.creation.rate=1000"),
        Step("configs", f"{TO} --describe {every}"),
        Step("configs", f"{TO} --alter {of_broker} --delete-config {own}.max.connections"),
        Step("configs", f"{TO} --describe {of_broker}"),
    )


def test_records_groups_and_offsets(sides: tuple[Side, Side]) -> None:
    keyed = "--property parse.key=true --property key.separator=:"
    shown = "--property print.key=true --property print.offset=true --property print.partition=true"
    group, delete = "--group g1", write(sides, "delete.json", {"version": 1, "partitions": [
        {"topic": "r", "partition": 0, "offset": 1}, {"topic": "r", "partition": 1, "offset": 99}]})  # fmt: skip
    records = "".join(f"k{n}:v{n}\n" for n in range(20))
    same(
        sides,
        Step("topics", f"{TO} --create --topic r --replica-assignment 0:1:2,1:2:0,2:0:1"),
        Step("console-producer", f"{TO} --topic r {keyed}", given=records),
        Step("console-consumer", f"{TO} --topic r --from-beginning --max-messages 20 {group} {shown}", ordered=False),
        Step("get-offsets", f"{TO} --topic r"),
        Step("get-offsets", f"{TO} --topic r --time earliest"),
        Step("get-offsets", f"{TO} --topic-partitions r:1-2 --time latest"),
        Step("consumer-groups", f"{TO} --list --state"),
        Step("consumer-groups", f"{TO} --describe {group}"),
        Step("consumer-groups", f"{TO} --describe {group} --members"),
        Step("consumer-groups", f"{TO} --describe {group} --state"),
        Step("consumer-groups", f"{TO} --describe --group nosuch", refused=True),
        Step("consumer-groups", f"{TO} {group} --reset-offsets --shift-by -2 --topic r --dry-run"),
        Step("consumer-groups", f"{TO} {group} --reset-offsets --to-earliest --topic r --execute"),
        Step("consumer-groups", f"{TO} --describe {group}"),
        Step("delete-records", f"{TO} --offset-json-file {delete}", ordered=False),
        Step("get-offsets", f"{TO} --topic r --time earliest"),
        Step("log-dirs", f"{TO} --describe --topic-list none"),
        Step("consumer-groups", f"{TO} --delete-offsets {group} --topic r:0"),
        Step("consumer-groups", f"{TO} --delete-offsets {group} --topic r"),
        Step("consumer-groups", f"{TO} --list"),
    )


def test_reassignment_and_elections(sides: tuple[Side, Side]) -> None:
    move = write(sides, "move.json", {"version": 1, "topics": [{"topic": "m"}]})
    plan = [{"topic": "m", "partition": p, "replicas": [(p + 1) % 3, (p + 2) % 3]} for p in range(3)]
    path = write(sides, "plan.json", {"version": 1, "partitions": plan})
    # The throttle is what keeps this one under way until it is cancelled.
    far = write(sides, "far.json", {"version": 1, "partitions": [{"topic": "big", "partition": 0, "replicas": [2]}]})
    bad = write(sides, "bad.json", {"version": 1, "partitions": [{"topic": "m", "partition": 0, "replicas": [7]}]})
    elect = write(sides, "elect.json", {"partitions": [{"topic": "m", "partition": 2}]})
    reassign, execute = f"{TO} --reassignment-json-file", "--execute --throttle"
    perf = "--producer-props bootstrap.servers={bootstrap}"
    same(
        sides,
        Step("topics", f"{TO} --create --topic m --replica-assignment 0:1,1:2,2:0"),
        Step(
            "reassign-partitions", f"{TO} --topics-to-move-json-file {move} --broker-list 0,1 --generate", figures=True
        ),
        Step("reassign-partitions", f"{reassign} {path} {execute} 1000000"),
    )
    for side in sides:
        done = Step("reassign-partitions", f"{TO} --list")
        eventually(lambda s=side, d=done: "No partition" in s.run(d), "moved", 60)
    same(
        sides,
        Step("configs", f"{TO} --describe --entity-type topics --entity-name m"),
        Step("reassign-partitions", f"{reassign} {path} --verify"),
        Step("configs", f"{TO} --describe --entity-type topics --entity-name m"),
        Step("topics", f"{TO} --describe --topic m"),
        Step("reassign-partitions", f"{reassign} {bad} --execute", refused=True),
        Step("reassign-partitions", f"{reassign} {path} --cancel"),
        Step("topics", f"{TO} --create --topic big --replica-assignment 0"),
        Step(
            "producer-perf-test",
            f"--topic big --num-records 3000 --record-size 1000 --throughput -1 {perf}",
            figures=True,
        ),
        Step("reassign-partitions", f"{reassign} {far} {execute} 1000"),
        Step("reassign-partitions", f"{TO} --list"),
        Step("reassign-partitions", f"{reassign} {far} --verify"),
        Step("reassign-partitions", f"{reassign} {far} --cancel"),
        Step("topics", f"{TO} --describe --topic big"),
        Step("leader-election", f"{TO} --election-type preferred --topic m --partition 0"),
        Step("leader-election", f"{TO} --election-type preferred --all-topic-partitions", ordered=False),
        Step("leader-election", f"{TO} --election-type unclean --path-to-json-file {elect}"),
        Step("leader-election", f"{TO} --election-type preferred --topic nosuch --partition 0", refused=True),
    )


def test_load_tools(sides: tuple[Side, Side]) -> None:
    perf = (
        "--num-records 20000 --record-size 100 --throughput -1 --producer-props bootstrap.servers={bootstrap} acks=all"
    )
    same(
        sides,
        Step("topics", f"{TO} --create --topic p --replica-assignment 0:1:2"),
        Step("producer-perf-test", f"--topic p {perf}", quiet=True),
        Step("consumer-perf-test", f"{TO} --topic p --messages 20000 --timeout 20000", figures=True),
        Step("get-offsets", f"{TO} --topic p"),
        Step("verifiable-producer", f"{TO} --topic p --max-messages 50 --acks -1", figures=True),
        Step(
            "verifiable-consumer",
            f"{TO} --topic p --group-id vg --max-messages 50 --reset-policy earliest",
            figures=True,
        ),
        Step("get-offsets", f"{TO} --topic p"),
        Step("cluster", f"cluster-id {TO}", quiet=True),
    )
    for side in sides:
        eventually(lambda c=side.cluster: len(set(c.digests("p", 0).values())) == 1, "replicas equal")
        # It compares what follows its start, and never ends.
        words = f"--broker-list {side.cluster.bootstrap} --topics-include p --report-interval-ms 1000 --time -2".split()
        kafka.watch("replica-verification", *words, until="max lag is 0 for partition")


def test_under_replicated_and_unavailable_partitions(sides: tuple[Side, Side]) -> None:
    """A replica on a broker that never was: under-replicated; a partition without any: unavailable.

    The last test of this file: these partitions stay as they are.
    """
    same(
        sides,
        Step("topics", f"{TO} --create --topic short --replica-assignment 0:7,1:2"),
        Step("topics", f"{TO} --create --topic none --replica-assignment 8", quiet=True, refused=True),
        Step("topics", f"{TO} --describe --under-replicated-partitions"),
        Step("topics", f"{TO} --describe --unavailable-partitions"),
        Step("topics", f"{TO} --describe --under-min-isr-partitions"),
    )
