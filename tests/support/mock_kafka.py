"""librdkafka's own cluster in memory, for tests of what reads and writes records by it.

    with MockKafka() as kafka:
        kafka.write("t", [("k", "v")], partition=0)
        kafka.bootstrap, kafka.committed("g", "t", 0)

Its brokers answer librdkafka's requests only, not those of the admin client.
"""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


class MockKafka:
    """One broker, as long as the `with` block; topics are made by the first write, with four partitions."""

    def __enter__(self) -> "MockKafka":
        options = {"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0}
        self._owner = Producer(options)
        told = self._owner.list_topics(timeout=10)
        (broker,), self.cluster_id = told.brokers.values(), told.cluster_id
        self.bootstrap = f"{broker.host}:{broker.port}"
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def __exit__(self, *failure: object) -> None:
        self._producer.flush(5)
        del self._producer, self._owner

    def write(self, topic: str, records: Sequence[tuple[str | None, str | None]], partition: int = 0) -> None:
        for key, value in records:
            self._producer.produce(topic, key=key, value=value, partition=partition)
        assert self._producer.flush(10) == 0

    def put(self, topic: str, **record: Any) -> None:
        """One record, by the arguments of `Producer.produce`."""
        self._producer.produce(topic, **record)
        assert self._producer.flush(10) == 0

    def times(self, topic: str, partition: int) -> list[int]:
        """The timestamps of a partition's records, in ms."""
        consumer = self._consumer("reader")
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[int] = []
        while True:
            (message,) = consumer.consume(1, timeout=10)
            if message.error() is not None:
                break
            found.append(message.timestamp()[1])
        consumer.close()
        return found

    def read(self, topic: str) -> list[Any]:
        """All records of a topic: (partition, key, value, headers)."""
        consumer = self._consumer("reader")
        count = 4
        consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
        found: list[Any] = []
        ended = 0
        while ended < count:
            for message in consumer.consume(100, timeout=0.2):
                if message.error() is not None:
                    ended += 1
                else:
                    found.append((message.partition(), message.key(), message.value(), message.headers()))
        consumer.close()
        return found

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """The committed offset; negative without one."""
        consumer = self._consumer(group)
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=10)
        consumer.close()
        return int(found.offset)

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        consumer = self._consumer(group)
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        consumer.close()

    def _consumer(self, group: str) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
