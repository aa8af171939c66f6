"""A producer that sends to one broker only, one request after the other, and keeps the error code of each answer."""

import threading
import time

from tests.support import wire_client
from tests.support.batches import Batch, Rec

TIMEOUT_MS = 6000


class DirectProducer(threading.Thread):
    """Sends records with acks=all to partition 0, one after the other; `answers`: the error codes, in order."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.answers: list[int] = []
        self._address, self._topic = address, topic
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        while not self._stop_wanted.is_set():
            records = Batch(0, 0, (Rec(0, b"k", b"v", int(time.time() * 1000)),)).encode()
            data = [{"name": self._topic, "partition_data": [{"index": 0, "records": records}]}]
            fields = {"transactional_id": None, "acks": -1, "timeout_ms": TIMEOUT_MS, "topic_data": data}
            answer = wire_client.ask(self._address, 0, 7, fields)
            self.answers.append(answer.responses[0].partition_responses[0].error_code)
            time.sleep(0.01)

    def stop(self) -> list[int]:
        """End, after the request under way; returns the answers."""
        self._stop_wanted.set()
        self.join(30)
        return self.answers
