"""Rows of transactions: how many a second, how long a commit takes, how fast their records are read."""

import os
import statistics
import subprocess
import threading
import time
import uuid
from pathlib import Path

from confluent_kafka import Producer

from tests.benchmarks.reference import kcat
from tests.benchmarks.reference.measure import Measured, Steps, cpu_s
from tests.benchmarks.reference.rows import topic
from tests.support import kafka
from tests.support.real_cluster import RealCluster

PARTITIONS = 6
RECORD_BYTES = 100
WAIT_S = 60.0
WARM = 20  # transactions of each producer before the clock starts
SOURCE = Path(__file__).parent / "Transactions.java"


def commits(cluster: RealCluster, *, records: int, producers: int, transactions: int) -> Measured:
    """librdkafka: `transactions` in all, of so many records each, one after the other by each of the producers.

    The time of a commit is from commit_transaction() to its return, with the flush of the records in it.
    """
    with topic(cluster, PARTITIONS, 3) as name:
        tellers = [_Teller(cluster, name, records, transactions // producers) for _ in range(producers)]
        cpu, begun = cpu_s(cluster), time.perf_counter()
        for teller in tellers:
            teller.start()
        for teller in tellers:
            teller.join()
        taken, used = time.perf_counter() - begun, cpu_s(cluster) - cpu
    commits = [seconds for teller in tellers for seconds in teller.taken]
    count = transactions // producers * producers
    assert len(commits) == count, f"{len(commits)} of {count} transactions committed"
    return _figures(count, taken, commits, used)


class _Teller(threading.Thread):
    """One producer; it has its id and has run a few transactions when it is made."""

    def __init__(self, cluster: RealCluster, name: str, records: int, transactions: int) -> None:
        super().__init__(daemon=True)
        self.taken: list[float] = []
        self._topic, self._records, self._transactions = name, records, transactions
        conf = {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"bench-{uuid.uuid4().hex[:8]}"}
        self._producer = Producer({**conf, "linger.ms": 0})
        self._producer.init_transactions(WAIT_S)
        for number in range(WARM):
            self._transact(number)
        self.taken.clear()

    def run(self) -> None:
        for number in range(self._transactions):
            self._transact(number)

    def _transact(self, number: int) -> None:
        self._producer.begin_transaction()
        for n in range(self._records):
            self._producer.produce(self._topic, b"x" * RECORD_BYTES, partition=(number + n) % PARTITIONS)
        begun = time.perf_counter()
        self._producer.commit_transaction(WAIT_S)
        self.taken.append(time.perf_counter() - begun)


def _figures(count: int, taken: float, commits: list[float], cpu: float) -> Measured:
    commits.sort()
    return {
        "transactions/s": count / taken,
        "commit p50 ms": statistics.median(commits) * 1000,
        "commit p99 ms": commits[len(commits) * 99 // 100] * 1000,
        "CPU ms each": cpu / count * 1000,
    }


def java_commits(cluster: RealCluster, *, records: int, producers: int, transactions: int) -> Measured:
    """The same with Java's producer; its machine is started before the clock."""
    with topic(cluster, PARTITIONS, 3) as name:
        words = [cluster.bootstrap, name, str(producers), str(records), str(transactions // producers), str(WARM)]
        command = [*kafka.java(("-Xmx256m",)), "-cp", f"{kafka.jars_or_skip()}/*", str(SOURCE), *words]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            assert running.stdout.readline().strip() == "ready"
            cpu, begun = cpu_s(cluster), time.perf_counter()
            running.stdin.write("go\n")
            running.stdin.flush()
            commits = [float(line) for line in iter(running.stdout.readline, "done\n")]
            taken, used = time.perf_counter() - begun, cpu_s(cluster) - cpu
    count = transactions // producers * producers
    assert len(commits) == count, f"{len(commits)} of {count} transactions committed"
    return _figures(count, taken, commits, used)


def written_and_read(cluster: RealCluster, *, size: int, records: int, megabytes: int) -> Steps:
    """librdkafka: transactions of `records` records, every tenth aborted; then kcat reads the committed ones."""
    values = [os.urandom((size + 1) // 2).hex()[:size].encode() for _ in range(1024)]
    transactions = megabytes * 1_000_000 // size // records
    with topic(cluster, PARTITIONS, 3) as name:
        conf = {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"bench-{uuid.uuid4().hex[:8]}"}
        producer = Producer({**conf, "linger.ms": 5})
        producer.init_transactions(WAIT_S)
        cpu, begun = cpu_s(cluster), time.perf_counter()
        for number in range(transactions):
            producer.begin_transaction()
            for n in range(records):
                producer.produce(name, values[n % 1024], partition=n * PARTITIONS // records)
            if number % 10 == 9:
                producer.flush(WAIT_S)
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
        produced, cpu_of_producing = time.perf_counter() - begun, cpu_s(cluster) - cpu
        committed = (transactions - transactions // 10) * records
        read = yield from kcat.readings(cluster, name, committed, size, "read_committed", committed=True)
    written = transactions * records * size / 1e6
    return {
        "produce MB/s": written / produced,
        "produce CPU s per GB": cpu_of_producing / written * 1000,
        **read,
    }
