"""TLS with what others have written: the stock clients and Kafka's tools on ours, and one cluster of both kinds."""

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.support.kafka import tool
from tests.support.tls_cluster import TlsCluster, running

REQUIRED = {"ssl.client.auth": "required"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    """One broker of ours that wants certificates."""
    with running(tmp_path_factory.mktemp("tls"), "O", {**REQUIRED, "min.insync.replicas": "1"}) as cluster:
        yield cluster


def create(cluster: TlsCluster, topic: str, partitions: int = 3) -> None:
    admin = AdminClient(cluster.librdkafka())
    admin.create_topics([NewTopic(topic, partitions, min(3, len(cluster.kinds)))])[topic].result(30)


def context(cluster: TlsCluster) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(cluster.trust))
    made.load_cert_chain(str(cluster.client))
    return made


def consumed(cluster: TlsCluster, topic: str, count: int, until: set[bytes] | None = None) -> list[bytes]:
    """Return `count` messages, or all until those in `until` have come."""
    missing = set(until or ())
    consumer = Consumer(cluster.librdkafka(**{"group.id": f"of-{topic}", "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            found.append(message.value())
            missing.discard(found[-1])
            if until is not None and not missing:
                break
    consumer.close()
    return found


def test_librdkafka(ours: TlsCluster) -> None:
    create(ours, "librdkafka")
    producer = Producer(ours.librdkafka())
    for number in range(1000):
        producer.produce("librdkafka", b"%d" % number)
    assert producer.flush(30) == 0
    assert sorted(map(int, consumed(ours, "librdkafka", 1000))) == list(range(1000))


def test_kafka_python(ours: TlsCluster) -> None:
    create(ours, "kafka-python")
    common: dict[str, Any] = {
        "bootstrap_servers": ours.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context(ours),
    }
    producer = KafkaProducer(**common)
    for number in range(300):
        producer.send("kafka-python", b"%d" % number)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=10_000, **common)
    found = []
    for message in consumer:
        found.append(int(message.value))
        if len(found) == 300:
            break
    consumer.close()
    assert sorted(found) == list(range(300))


def test_aiokafka(ours: TlsCluster) -> None:
    create(ours, "aiokafka")

    async def main() -> list[int]:
        common: dict[str, Any] = {
            "bootstrap_servers": ours.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context(ours),
        }
        async with AIOKafkaProducer(**common) as producer:
            for number in range(300):
                await producer.send("aiokafka", b"%d" % number)
            await producer.flush()
        found: list[int] = []
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **common) as consumer:
            async with asyncio.timeout(30):
                async for message in consumer:
                    found.append(int(message.value))
                    if len(found) == 300:
                        break
        return found

    assert sorted(asyncio.run(main())) == list(range(300))


@pytest.mark.parametrize("pem", [False, True])
def test_kafkas_tools(ours: TlsCluster, tmp_path: Path, pem: bool) -> None:
    """Java's clients, with PKCS12 and with PEM."""
    topic = f"java-{pem}"
    create(ours, topic)
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in ours.java(pem=pem).items()))
    tool(
        "producer-perf-test", "--topic", topic, "--num-records", "2000", "--record-size", "1000", "--throughput", "-1",
        "--producer.config", str(properties), "--producer-props", f"bootstrap.servers={ours.bootstrap}",
    )  # fmt: skip
    told = tool(
        "get-offsets", "--bootstrap-server", ours.bootstrap, "--topic", topic, "--command-config", str(properties)
    )
    assert sum(int(line.rpartition(":")[2]) for line in told.splitlines() if line.startswith(topic)) == 2000
    assert len(consumed(ours, topic, 2000)) == 2000


def test_without_a_certificate_nobody_is_served(ours: TlsCluster) -> None:
    settings = {k: v for k, v in ours.librdkafka(log_level=0).items() if k not in CERTIFICATE}
    with pytest.raises(Exception, match=r"(?i)transport|timed out|ssl"):
        AdminClient(settings).list_topics(timeout=5)


CERTIFICATE = ("ssl.certificate.location", "ssl.key.location")


@pytest.mark.parametrize("kinds", ["OOO", "OKO", "KOK"])
def test_a_cluster_with_tls_between_its_brokers_loses_nothing(tmp_path: Path, kinds: str) -> None:
    """acks=all while brokers of ours are killed, one after the other, and come back."""
    with running(tmp_path / "cluster", kinds, {**REQUIRED, "min.insync.replicas": "2"}) as cluster:
        create(cluster, "kept", 6)
        acknowledged: set[bytes] = set()
        stop = threading.Event()

        def produce() -> None:
            producer = Producer(cluster.librdkafka(acks="all", **{"linger.ms": 0, "message.timeout.ms": 60_000}))

            def delivered(error: Any, message: Any) -> None:
                if error is None:
                    acknowledged.add(message.value())

            number = 0
            while not stop.is_set():
                producer.produce("kept", b"%d" % number, on_delivery=delivered)
                number += 1
                producer.poll(0)
                time.sleep(0.001)
            producer.flush(60)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            for broker in (number for number, kind in enumerate(kinds) if kind == "O"):
                time.sleep(2)
                cluster.kill(broker)
                time.sleep(1)
                cluster.start_broker(broker)
                cluster.await_brokers()
                cluster.await_in_sync("kept")
        finally:
            stop.set()
            thread.join()
        assert len(acknowledged) > 500
        assert acknowledged - set(consumed(cluster, "kept", 1 << 30, until=acknowledged)) == set()
