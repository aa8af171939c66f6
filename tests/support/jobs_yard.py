"""Brokers that are directories behind a strict lease server, for runs of the Spark jobs.

yard = Yard(tmp_path, stack, monkeypatch)      # topic t; jobs connect to it whatever their arguments name
yard.add_topic("u")
"""

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata
from tests.support import compaction_model as model
from tests.support.batches import Rec, batch, read_back
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition, write_txn_indexes


class Yard:
    """Three brokers with two partitions: 0 with transactions and every codec, 1 plain; broker 3 hides its disk."""

    def __init__(self, root: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs = {0: model.random_log(random.Random(14), 120), 1: self.plain(60)}
        self.brokers: dict[int, FakeBroker] = {}
        self.others: dict[str, dict[int, PartitionMetadata]] = {}
        for broker_id in (1, 2, 3):
            replicas = {}
            for partition, log in self.logs.items():
                segments = [log.batches[i : i + 20] for i in range(0, len(log.batches), 20)]
                directory = write_partition(root / str(broker_id), f"t-{partition}", segments)
                write_txn_indexes(directory, log.aborted_index())
                replicas["t", partition] = FakeReplica(directory, broker_id == 1 + partition, isr=(1, 2, 3))
                replicas["t", partition].aborted = [
                    dict(zip(("producer_id", "first_offset", "last_offset", "last_stable_offset"), row, strict=True))
                    for row in log.aborted_index()
                ]
                if log.open_from is not None:
                    replicas["t", partition].high_watermark = log.open_from
            self.brokers[broker_id] = stack.enter_context(FakeBroker(broker_id, replicas, hidden=broker_id == 3))
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: self.cluster())

    def add_topic(self, name: str) -> None:
        """Add a topic of one partition, which broker 1 leads; broker 2 follows."""
        batches = self.plain(20).batches
        for broker_id in (1, 2):
            root = self.replica(broker_id, 0).directory.parent
            directory = write_partition(root, f"{name}-0", [batches[:10], batches[10:]])
            self.brokers[broker_id].replicas[name, 0] = FakeReplica(directory, broker_id == 1, isr=(1, 2))
        self.others[name] = {0: PartitionMetadata(1, (1, 2), (1, 2))}

    @staticmethod
    def plain(count: int) -> model.Log:
        pairs = [(Rec(2 * i, b"k%d" % (i % 7), b"v%d" % i), Rec(2 * i + 1, b"u", b"w")) for i in range(count)]
        return model.Log([batch(pair) for pair in pairs])

    def cluster(self) -> Cluster:
        places = {p: PartitionMetadata(1 + p, (1, 2, 3), (1, 2, 3)) for p in self.logs}
        metadata = Metadata("fake", tuple(self.brokers), {"t": places, **self.others})
        http = {b: BrokerHttp(b, fake.address, fake.token) for b, fake in self.brokers.items()}
        return Cluster(metadata, http)

    def replica(self, broker_id: int, partition: int) -> FakeReplica:
        return self.brokers[broker_id].replicas["t", partition]

    def bytes_of(self, broker_id: int, partition: int) -> bytes:
        return b"".join(p.read_bytes() for p in self.replica(broker_id, partition).logs())

    def records_of(self, broker_id: int, partition: int) -> list[Rec]:
        return [r for b in read_back(self.bytes_of(broker_id, partition)) if not b.is_control for r in b.records]

    def end_of_closed(self, partition: int) -> int:
        replica = self.replica(1, partition)
        base = int(replica.logs()[-1].stem)
        return base if replica.high_watermark is None else min(base, replica.high_watermark)

    def leases_left(self) -> list[str]:
        states = [lease["state"] for b in self.brokers.values() for lease in b.leases.values()]
        return [state for state in states if state == "active"]


def damaged(data: bytes) -> bytes:
    """The log with a wrong checksum in its first batch."""
    return data[:20] + bytes([data[20] ^ 1]) + data[21:]
