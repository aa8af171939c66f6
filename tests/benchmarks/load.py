"""librdkafka's producer at full speed or at a fixed rate, against any three brokers: what goes through, how long it
takes."""

import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from tests.benchmarks import frames
from tests.benchmarks.harness import Server


@dataclass(slots=True)
class Result:
    """What one run did; latencies in seconds, of every hundredth record."""

    records: int
    seconds: float
    cpu_s: float
    latencies: list[float]


class Load:
    """A producer of records of one size."""

    def __init__(self, brokers: list[Server], size: int, settings: dict[str, str]) -> None:
        self._brokers = brokers
        self._value = b"x" * size
        bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "acks": "all",
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            **settings,
        }

    def run(self, seconds: float, per_second: float | None) -> Result:
        """Produce for so long, as fast as it goes or at a fixed rate, and wait for the last acknowledgement."""
        producer = Producer(self._settings)
        latencies: list[float] = []
        before, begun = sum(broker.cpu_s() for broker in self._brokers), time.perf_counter()

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise RuntimeError(f"a record was not acknowledged: {error}")
            latencies.append(message.latency())

        sent = 0
        while (now := time.perf_counter()) < begun + seconds:
            due = 500 if per_second is None else int((now - begun) * per_second) - sent
            for _ in range(due):
                # Every hundredth record reports: a call back into Python for each would be what is measured.
                report = acknowledged if sent % 100 == 0 else None
                try:
                    producer.produce(frames.TOPIC, self._value, on_delivery=report)
                except BufferError:
                    producer.poll(0.005)
                    break
                sent += 1
            producer.poll(0 if per_second is None else 0.001)
        if producer.flush(120):
            raise RuntimeError("not everything was acknowledged in two minutes")
        took = time.perf_counter() - begun
        return Result(sent, took, sum(broker.cpu_s() for broker in self._brokers) - before, latencies)
