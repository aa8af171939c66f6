"""Groups on Apache Kafka's broker, and on ours started on what it left behind: the same questions, the same answers."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from logyard.admin.cluster.snapshot import NewTopic
from tests.reference.both_kinds import BothKinds
from tests.support import kafka
from tests.support.real_cluster import eventually
from tests.support.wire_client import ask

pytestmark = pytest.mark.timeout(600)

OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, LEAVE_GROUP, LIST_GROUPS = 9, 10, 11, 14, 13, 16
PARTITIONS = range(4)
GROUPS = ("g", "only-open", "unknown")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothKinds]:
    """One broker of Apache Kafka's."""
    kafka.jars_or_skip()
    config = {"offsets.topic.num.partitions": "1", "transaction.state.log.min.isr": "1"}
    config["transaction.state.log.replication.factor"] = "1"
    home = tmp_path_factory.mktemp("groups")
    with kafka.running(home, "K", config) as cluster, closing(BothKinds(cluster, "K")) as both:
        yield both


def become_ours(broker: BothKinds) -> None:
    broker.stop(0)
    broker.turn(0, "O")
    broker.start(0)


def committed(address: str, group: str, *, require_stable: bool) -> dict[int, tuple[int, int]]:
    """Error and offset of each partition, as OffsetFetch v7 has them."""
    wanted = [{"name": "t", "partition_indexes": list(PARTITIONS)}]
    fields = {"group_id": group, "topics": wanted, "require_stable": require_stable}

    def answer() -> Any:
        found = ask(address, OFFSET_FETCH, 7, fields)
        return found if found.error_code == 0 else None

    found = eventually(answer, f"offsets of {group}", 60)
    return {p.partition_index: (p.error_code, p.committed_offset) for p in found.topics[0].partitions}


def answers(address: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {
        (group, stable): committed(address, group, require_stable=stable)
        for group in GROUPS
        for stable in (False, True)
    }
    listed = ask(address, LIST_GROUPS, 4, {"states_filter": []}).groups
    found["groups"] = sorted((g.group_id, g.group_state, g.protocol_type) for g in listed)
    return found


def transactional(bootstrap: str, name: str, group: str, offsets: dict[int, int]) -> Producer:
    """A producer in a transaction that has committed these offsets for the group."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
        producer.init_transactions(60)
        producer.begin_transaction()
        places = [TopicPartition("t", partition, offset) for partition, offset in offsets.items()]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 60)
    return producer


def static_member(address: str, group: str, version: int) -> list[dict[str, Any]]:
    """A static member alone in its group, which it leads, comes back twice; what it is answered, ids made plain."""

    def joined(metadata: bytes) -> Any:
        fields = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "",
            "group_instance_id": "i",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        return eventually(
            lambda: (a := ask(address, JOIN_GROUP, version, fields)).error_code in (0, 82) and a, "joined", 60
        )

    names: dict[str, str] = {}

    def plain(answer: Any) -> dict[str, Any]:
        for member_id in (answer.member_id, answer.leader, *(m.member_id for m in answer.members)):
            names.setdefault(member_id, f"id {len(names)}" if member_id else "")
        return {
            "error": answer.error_code,
            "generation": answer.generation_id,
            "member": names[answer.member_id],
            "leader": names[answer.leader],
            "members": [(names[m.member_id], m.group_instance_id, bytes(m.metadata)) for m in answer.members],
            "protocol": answer.protocol_name,
            "skips": getattr(answer, "skip_assignment", None),
        }

    first = joined(b"m")
    told = [plain(first)]
    given = [{"member_id": first.member_id, "assignment": b"all"}]
    own = {"group_id": group, "member_id": first.member_id, "group_instance_id": "i"}
    ask(address, SYNC_GROUP, 3, own | {"generation_id": first.generation_id, "assignments": given})
    told += [plain(joined(b"m")), plain(joined(b"other"))]
    leaver = {"member_id": "", "group_instance_id": "i"}
    ask(address, LEAVE_GROUP, 3, {"group_id": group, "members": [leaver]})
    return told


def test_what_kafka_wrote_is_what_we_answer(broker: BothKinds) -> None:
    """Offsets of transactions that were committed, aborted, and are open; static members that come back."""
    broker.admin.create_topic(NewTopic("t", partitions=len(PARTITIONS), replication_factor=1))
    bootstrap = broker.cluster.bootstrap
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})) as consumer:
        consumer.commit(offsets=[TopicPartition("t", p, 1) for p in PARTITIONS], asynchronous=False)
    transactional(bootstrap, "commits", "g", {0: 10}).commit_transaction(60)
    transactional(bootstrap, "aborts", "g", {1: 20}).abort_transaction(60)
    open_ones = [
        transactional(bootstrap, "stays", "g", {2: 30}),
        transactional(bootstrap, "alone", "only-open", {0: 40}),
    ]
    static = {version: static_member(bootstrap, f"static-{version}", version) for version in (5, 9)}
    theirs = answers(bootstrap)
    assert theirs["g", False] == {0: (0, 10), 1: (0, 1), 2: (0, 1), 3: (0, 1)}
    assert theirs["g", True] == {0: (0, 10), 1: (0, 1), 2: (88, -1), 3: (0, 1)}
    become_ours(broker)
    assert answers(bootstrap) == theirs
    for version, told in static.items():
        assert static_member(bootstrap, f"static-of-ours-{version}", version) == told
    del open_ones
