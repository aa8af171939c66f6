"""A producer with acks=all that runs through whatever a test does to the brokers, and what it was promised."""

import threading
from typing import Any

from confluent_kafka import Producer

from tests.support.real_cluster import RealCluster


class Load(threading.Thread):
    """Keeps sending until `stop`; `acknowledged` has the offset of every (partition, value) that was acknowledged."""

    def __init__(self, cluster: RealCluster, topic: str, **conf: Any) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[tuple[int, bytes], int] = {}
        self._cluster, self._topic = cluster, topic
        self._stop_wanted = threading.Event()
        settings = {**cluster.client_options, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, **conf})

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition(), message.value()] = message.offset()

    def run(self) -> None:
        sent = 0
        while not self._stop_wanted.is_set():
            self._producer.produce(self._topic, str(sent).encode(), str(sent).encode(), on_delivery=self._delivered)
            self._producer.poll(0.001)
            sent += 1
        self._producer.flush(60)

    def stop(self) -> dict[tuple[int, bytes], int]:
        self._stop_wanted.set()
        self.join(90)
        return self.acknowledged

    def lost(self) -> dict[tuple[int, bytes], int]:
        """What was acknowledged and cannot be read back at its offset."""
        records = self._cluster.consume(self._topic, len(self.acknowledged), 60)
        read = {(m.partition(), m.value()): m.offset() for m in records}
        return {key: offset for key, offset in self.acknowledged.items() if read.get(key) != offset}
