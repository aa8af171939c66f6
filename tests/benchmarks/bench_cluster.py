"""Three brokers, three replicas, acks=all, under librdkafka: what goes through, and how long it takes at 30 % of that.

The client runs on the same machine and takes its share of it: rates are those of the whole, and CPU seconds per GB
are the three brokers' alone.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.benchmarks import frames, harness
from tests.benchmarks.harness import Row, Server

PARTITIONS = 6
SECONDS = 6
LATENCY_SECONDS = 8
LOAD = 0.3
CONFIG = {"min.insync.replicas": "2", "log.retention.bytes": str(256 << 20), "log.cleaner.enable": "false"}
# What, bytes of a record, the producer's settings.
CASES: tuple[tuple[str, int, dict[str, str]], ...] = (
    ("1 KiB, default batches", 1024, {}),
    ("100 B, default batches", 100, {}),
    ("1 KiB, 16 KB batches", 1024, {"batch.size": "16384"}),
    ("100 B, 16 KB batches", 100, {"batch.size": "16384"}),
)


def measure(directory: Path) -> list[Row]:
    """Every row of this file; about two minutes."""
    with harness.cluster_of(directory / "three", 3, CONFIG) as cluster:
        brokers = harness.servers(cluster)
        harness.create_topics(brokers, {frames.TOPIC: (PARTITIONS, 3)}, {})
        rows = []
        for what, size, settings in CASES:
            load = Load(brokers, size, settings)
            load.run(2, None)
            harness.warm_page_cache(directory, 1 << 30)
            full = load.run(SECONDS, None)
            paced = load.run(LATENCY_SECONDS, full.records / full.seconds * LOAD)
            gigabytes = full.records * size / 1e9
            rows += [
                Row(f"3 brokers, acks=all, {what}", full.records * size / full.seconds / 1e6, "MB/s"),
                Row("  records", full.records / full.seconds, "per s"),
                Row("  CPU of the brokers, per GB of records", full.cpu_s / gigabytes, "s"),
            ]
            for share in (0.5, 0.99, 0.999):
                took = harness.percentile(paced.latencies, share) * 1000
                rows.append(Row(f"  latency at {LOAD:.0%} of that, p{share * 100:g}", took, "ms"))
        return rows


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
