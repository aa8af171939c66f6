"""A producer that sends while replicas are moved and brokers killed; what was acknowledged must be there afterwards."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from logyard.local.demo.loader import DELIVERY_S, Acknowledged, Reach, producer_config
from logyard.local.errors import LocalError

PAUSE_S = 0.02


class Traffic:
    """Sends `values` repeatedly with acks=all, one every `PAUSE_S` seconds, until `end`."""

    def __init__(self, reach: Reach, topic: str, values: Sequence[bytes]) -> None:
        self._producer = Producer({**producer_config(reach), "linger.ms": 5})
        self._topic = topic
        self._source = values
        self._sent: list[bytes] = []
        self._places: dict[int, tuple[int, int]] = {}
        self._failures: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> tuple[Acknowledged, list[bytes]]:
        """Stop sending, and wait for what is in flight. Returns where the events were acknowledged, and the events.

        Raises LocalError if one was not acknowledged: none may fail while most replicas are alive.
        """
        self._over.set()
        self._thread.join()
        left = self._producer.flush(DELIVERY_S)
        if self._failures or left:
            reason = self._failures[0] if self._failures else "no answer"
            raise LocalError(
                f"{max(len(self._failures), left)} of {len(self._sent)} events were not acknowledged while brokers "
                f"moved and died: {reason}"
            )
        places = [self._places[index] for index in range(len(self._sent))]
        partitions = np.array([partition for partition, _ in places], dtype=np.int32)
        return Acknowledged(partitions, np.array([offset for _, offset in places], dtype=np.int64)), self._sent

    def close(self) -> None:
        """Stop at once; events in flight are dropped."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.purge()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            index = len(self._sent)
            self._sent.append(self._source[index % len(self._source)])
            try:
                self._producer.produce(self._topic, value=self._sent[index], on_delivery=self._noting(index))
            except (BufferError, KafkaException) as error:
                self._failures.append(str(error))
                return
            self._producer.poll(0)

    def _noting(self, index: int) -> Any:
        def note(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self._failures.append(error.str())
            else:
                self._places[index] = (message.partition(), message.offset())

        return note
