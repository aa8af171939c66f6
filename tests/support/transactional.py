"""Transactional clients of librdkafka's, as tests use them: producers, readers of committed records, a copier."""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)

WAIT_S = 60.0
# A reader that ends where the partitions end looks so often whether they have: it would wait in vain for more.
END_S = 0.05

# librdkafka 2.10 to 2.16 may wait for ever in send_offsets_to_transaction, whatever its time-out, if the group's
# coordinator has died and left the metadata (its issues 5511 and 5456). Any connection that opens or closes wakes it.
IDLE = {"connections.max.idle.ms": 5_000}


def transactional(bootstrap: str, name: str, **conf: Any) -> Producer:
    """A producer that has its id and its epoch."""
    keys = {key.replace("_", "."): value for key, value in conf.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **IDLE, **keys})
    producer.init_transactions(WAIT_S)
    return producer


def read(bootstrap: str, topic: str, *, committed: bool = True, timeout_s: float = WAIT_S) -> list[Any]:
    """All records of a topic up to where that reader may read now, in the order of each partition."""
    isolation = "read_committed" if committed else "read_uncommitted"
    conf = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": isolation}
    with closing(Consumer({**conf, "enable.partition.eof": True, "enable.auto.commit": False})) as consumer:
        partitions = consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found, left = [], set(partitions)
        deadline = time.monotonic() + timeout_s
        while left:
            assert time.monotonic() < deadline, f"partitions {sorted(left)} of {topic} have not been read to their end"
            for message in consumer.consume(1000, END_S):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    left.discard(message.partition())
        return found


def values(bootstrap: str, topic: str, *, committed: bool = True) -> Counter[bytes]:
    """How often each value is read."""
    return Counter(message.value() for message in read(bootstrap, topic, committed=committed))


class AnyCopier(Protocol):
    """Copies `source` into `target` exactly once; `transactions` counts those it has committed."""

    transactions: int
    log: list[str]

    def start(self) -> None: ...

    def stop(self) -> None: ...


class ProcessCopier:
    """A copier that is a program: it prints a line with `copied` for each transaction. `command` runs it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self.log: list[str] = []
        self.transactions = 0

    def start(self) -> None:
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process: subprocess.Popen[str] = subprocess.Popen(self._command, text=True, **out)  # type: ignore[call-overload]
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            self.log.append(line.rstrip())
            self.transactions += " copied " in line

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)
        self._listener.join(WAIT_S)


class Copier(threading.Thread):
    """Copies a topic exactly once: each transaction has a batch of records and the offsets after it.

    Whatever an error asks for is done: the transaction is aborted and read again from the committed offsets, or the
    producer is made anew under its id. `log` has what happened, for a test that fails.
    """

    def __init__(self, bootstrap: str, source: str, target: str, batch: int = 200) -> None:
        super().__init__(daemon=True)
        self.log: list[str] = []
        self.transactions = 0
        self._servers, self._source, self._target = bootstrap, source, target
        self._batch = batch
        self._ended = threading.Event()
        self._group = f"copy-{source}"

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._live()
            except KafkaException as problem:
                self._note(f"begins anew: {problem.args[0]}")
                time.sleep(0.2)

    def stop(self) -> None:
        self._ended.set()
        self.join(WAIT_S)

    def _live(self) -> None:
        """One producer's life: until it is fenced, or has failed for good."""
        producer = transactional(self._servers, f"copier-{self._source}", transaction_timeout_ms=20_000)
        conf = {
            "bootstrap.servers": self._servers,
            "group.id": self._group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        with closing(Consumer(conf)) as consumer:
            partitions = consumer.list_topics(self._source, timeout=WAIT_S).topics[self._source].partitions
            places = [TopicPartition(self._source, partition) for partition in partitions]
            self._seek(consumer, places)
            while not self._ended.is_set():
                messages = [m for m in consumer.consume(self._batch, 1.0) if m.error() is None]
                if not messages:
                    continue
                try:
                    self._copy(producer, consumer, messages)
                    self.transactions += 1
                except KafkaException as problem:
                    if problem.args[0].fatal() or not problem.args[0].txn_requires_abort():
                        raise
                    self._note(f"aborts: {problem.args[0]}")
                    self._again(lambda: producer.abort_transaction(WAIT_S))
                    self._seek(consumer, places)

    def _copy(self, producer: Producer, consumer: Consumer, messages: list[Any]) -> None:
        producer.begin_transaction()
        for message in messages:
            while True:
                try:
                    producer.produce(self._target, message.value(), message.key())
                    break
                except BufferError:
                    producer.poll(0.1)
        after: dict[int, int] = {}
        for message in messages:
            after[message.partition()] = max(message.offset() + 1, after.get(message.partition(), 0))
        offsets = [TopicPartition(self._source, partition, offset) for partition, offset in after.items()]
        metadata = consumer.consumer_group_metadata()
        self._again(lambda: producer.send_offsets_to_transaction(offsets, metadata, WAIT_S))
        self._again(lambda: producer.commit_transaction(WAIT_S))

    def _again(self, step: Callable[[], None]) -> None:
        """Repeat what may be repeated."""
        while True:
            try:
                return step()
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise
                self._note(f"tries again: {problem.args[0]}")

    def _seek(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Read on after what is committed; commits that are still open are waited for."""
        found = consumer.committed(places, WAIT_S)
        consumer.assign(
            [TopicPartition(p.topic, p.partition, p.offset if p.offset >= 0 else OFFSET_BEGINNING) for p in found]
        )

    def _note(self, said: str) -> None:
        self.log.append(f"{time.strftime('%H:%M:%S')} {said}")
