"""A transactional client that sends each request by hand, with whatever producer and epoch it is told to.

`RawTransactions(yard, "id")` asks the brokers that a client would ask; answers are error codes.
"""

import time
from typing import Any, NamedTuple

from tests.support.batches import TRANSACTIONAL, Batch, Rec
from tests.support.real_cluster import RealCluster, eventually
from tests.support.wire_client import ask

PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS = 0, 10, 22, 24, 25
END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT, LIST_TRANSACTIONS = 26, 27, 28, 66
OF_GROUP, OF_TRANSACTION = 0, 1


class Pair(NamedTuple):
    """A producer id with an epoch."""

    producer_id: int
    producer_epoch: int

    def before(self) -> "Pair":
        return Pair(self.producer_id, self.producer_epoch - 1)


NO_PAIR = Pair(-1, -1)


def coordinator_of(yard: RealCluster, key: str, key_type: int = OF_TRANSACTION) -> str:
    """The address of the broker that coordinates a transactional id or a group."""
    fields = {"key": key, "key_type": key_type}
    first = yard.bootstrap.split(",")[0]
    found = eventually(lambda: (a := ask(first, FIND_COORDINATOR, 2, fields)).error_code == 0 and a, "a coordinator")
    return f"{found.host}:{found.port}"


class RawTransactions:
    """See the head of this file."""

    def __init__(self, yard: RealCluster, name: str, timeout_ms: int = 60_000) -> None:
        self._yard, self.name, self._timeout_ms = yard, name, timeout_ms
        self.coordinator = coordinator_of(yard, name)

    def initialize(self, pair: Pair = NO_PAIR, version: int = 4) -> Any:
        """InitProducerId, once."""
        fields = {"transactional_id": self.name, "transaction_timeout_ms": self._timeout_ms, **pair._asdict()}
        return ask(self.coordinator, INIT_PRODUCER_ID, version, fields)

    def begin_life(self) -> Pair:
        """InitProducerId until the id is free: what its last producer has begun is aborted."""
        found = eventually(lambda: (a := self.initialize()).error_code == 0 and a, "a producer", 30)
        return Pair(found.producer_id, found.producer_epoch)

    def add(self, pair: Pair, topic: str, version: int = 3) -> int:
        """AddPartitionsToTxn of partition 0."""
        prefix = "v3_and_below_"
        fields = {
            f"{prefix}transactional_id": self.name,
            **{prefix + key: value for key, value in pair._asdict().items()},
            f"{prefix}topics": [{"name": topic, "partitions": [0]}],
        }
        answer = ask(self.coordinator, ADD_PARTITIONS, version, fields)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def add_offsets(self, pair: Pair, group: str, version: int = 3) -> int:
        fields = {"transactional_id": self.name, **pair._asdict(), "group_id": group}
        return int(ask(self.coordinator, ADD_OFFSETS, version, fields).error_code)

    def produce(self, pair: Pair, topic: str, value: bytes, sequence: int = 0, version: int = 11) -> int:
        """Produce one record to partition 0."""
        record = Rec(0, None, value, int(time.time() * 1000))
        batch = Batch(0, 0, (record,), flags=TRANSACTIONAL, sequence=sequence, **pair._asdict())
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch.encode()}]}]
        fields = {"transactional_id": self.name, "acks": -1, "timeout_ms": 10_000, "topic_data": data}
        answer = ask(self.leader(topic), PRODUCE, version, fields)
        return int(answer.responses[0].partition_responses[0].error_code)

    def commit_offset(self, pair: Pair, group: str, topic: str, offset: int, version: int = 4) -> int:
        """TxnOffsetCommit for partition 0, as a member of no generation."""
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        fields = {
            "transactional_id": self.name,
            "group_id": group,
            **pair._asdict(),
            **member,
            "topics": [{"name": topic, "partitions": [partition]}],
        }
        answer = ask(coordinator_of(self._yard, group, OF_GROUP), TXN_OFFSET_COMMIT, version, fields)
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, pair: Pair, *, commits: bool, version: int = 3) -> int:
        fields = {"transactional_id": self.name, **pair._asdict(), "committed": commits}
        return int(ask(self.coordinator, END_TXN, version, fields).error_code)

    def mark(self, pair: Pair, topic: str, coordinator_epoch: int) -> int:
        """A commit marker for partition 0, as a coordinator sends it."""
        marker = {
            **pair._asdict(),
            "transaction_result": True,
            "topics": [{"name": topic, "partition_indexes": [0]}],
            "coordinator_epoch": coordinator_epoch,
        }
        answer = ask(self.leader(topic), WRITE_MARKERS, 1, {"markers": [marker]})
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    def leader(self, topic: str) -> str:
        return self._yard.address(int(self._yard.describe(topic)[0].leader))


def open_transactions(yard: RealCluster) -> set[str]:
    """The ids whose transactions have not ended, by all brokers."""
    fields = {"state_filters": ["Ongoing", "PrepareCommit", "PrepareAbort"], "producer_id_filters": []}
    found: set[str] = set()
    for address in yard.bootstrap.split(","):
        answer = ask(address, LIST_TRANSACTIONS, 0, fields)
        assert answer.error_code == 0, "it is loading"
        found |= {one.transactional_id for one in answer.transaction_states}
    return found
