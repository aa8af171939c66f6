"""Records copied by an operator on real brokers: transactions, times, codecs, and what the brokers refuse."""

import json
import os
import signal
import struct
import threading
import time
from typing import Any

import crc32c
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytest.importorskip("airflow.sdk")

from logyard.broker.records.build import build
from logyard.broker.records.decode import Record
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.copying import CopyRecordsOperator
from logyard.operators.writing import Ended
from tests.support import wire_client
from tests.support.airflow_tasks import context, run
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import END_S

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

T = 1_700_000_000_000
KEPT = "-1"  # brokers look every five minutes for what is older than a week


@pytest.fixture(autouse=True)
def connection(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"conn_type": "logyard", "host": cluster.bootstrap}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(fields))


def copy(topic: str, to_topic: str, **fields: Any) -> dict[str, Any]:
    operator = CopyRecordsOperator(task_id="c", topic=topic, to_topic=to_topic, wait_timeout_s=60, **fields)
    return run(operator, context(run_id=f"{topic}-{to_topic}-{abs(hash(str(fields)))}"))[0]  # type: ignore[no-any-return]


def read(cluster: RealCluster, topic: str, partitions: int = 3) -> list[Any]:
    """(partition, key, value, headers, timestamp) of what `read_committed` readers see."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "r", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        for m in consumer.consume(1000, timeout=END_S):
            if m.error() is not None:
                ended += 1
            else:
                found.append((m.partition(), m.key(), m.value(), m.headers(), m.timestamp()[1]))
    consumer.close()
    return found


def producer(cluster: RealCluster, **options: Any) -> Any:
    return Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, **options})


def test_thousands_of_records_are_copied_as_they_are(cluster: RealCluster) -> None:
    cluster.create("copy-many", retention_ms=KEPT)
    cluster.create("copy-many-to", compression_type="zstd", retention_ms=KEPT)
    writer = producer(cluster, **{"compression.type": "lz4"})
    for n in range(5000):
        writer.produce(
            "copy-many", b"%d" % n, b"k%d" % n, partition=n % 3, timestamp=T + n * 1000, headers=[("n", b"%d" % n)]
        )
    writer.produce("copy-many", b"x" * 900_000, None, partition=0, timestamp=T + 5_000_000)
    assert writer.flush(30) == 0
    result = copy("copy-many", "copy-many-to", keep_partitions=True)
    assert (result["records"], result["looked_at"]) == (5001, 5001)
    assert sorted(read(cluster, "copy-many-to"), key=repr) == sorted(read(cluster, "copy-many"), key=repr)
    assert {p: (one["start"], one["end"]) for p, one in result["offsets"].items()} == {
        "0": (0, 1668),
        "1": (0, 1667),
        "2": (0, 1666),
    }


def test_a_header_whose_name_is_not_text_is_named(cluster: RealCluster) -> None:
    """Kafka allows it; librdkafka's Python client fails on it with an error of the interpreter."""
    cluster.create("copy-odd", partitions=1, replicas=1, retention_ms=KEPT)
    cluster.create("copy-odd-to", partitions=1, retention_ms=KEPT)
    writer = producer(cluster)
    for _ in range(300):  # the loop is specialised by then
        writer.produce("copy-odd", b"v", headers=[("n", b"1")])
    assert writer.flush(30) == 0
    batch = bytes(build([Record(0, T, b"k", b"v", (("zz", b"1"),))])).replace(b"\x04zz", b"\x04\xff\xfe")
    batch = batch[:17] + struct.pack(">I", crc32c.crc32c(batch[21:])) + batch[21:]
    data = [{"name": "copy-odd", "partition_data": [{"index": 0, "records": batch}]}]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 6000, "topic_data": data}
    answers = [wire_client.ask(address, 0, 7, fields) for address in cluster.bootstrap.split(",")]
    assert 0 in [answer.responses[0].partition_responses[0].error_code for answer in answers]
    for text in ("", "v"):
        with pytest.raises(AirflowFailException, match="copy-odd-0, offset 300: the name of one of its headers"):
            copy("copy-odd", "copy-odd-to", text=text)
    assert read(cluster, "copy-odd-to", 1) == []


def test_times_and_the_newest_are_found(cluster: RealCluster) -> None:
    cluster.create("copy-times", partitions=2, retention_ms=KEPT)
    for name in ("copy-times-a", "copy-times-b"):
        cluster.create(name, partitions=1, retention_ms=KEPT)
    writer = producer(cluster)
    for n in range(100):
        writer.produce("copy-times", b"%d" % n, partition=n % 2, timestamp=T + n * 1000)
    assert writer.flush(30) == 0
    # 2023-11-14T22:13:20Z is T.
    result = copy("copy-times", "copy-times-a", start="2023-11-14T22:13:50Z", end="2023-11-14T22:14:00Z")
    assert result["records"] == 10
    assert sorted(int(value) for _, _, value, *_ in read(cluster, "copy-times-a", 1)) == list(range(30, 40))
    assert copy("copy-times", "copy-times-b", start="newest", limit=7)["records"] == 7
    assert sorted(int(value) for _, _, value, *_ in read(cluster, "copy-times-b", 1)) == list(range(93, 100))


def test_only_committed_records_are_copied(cluster: RealCluster) -> None:
    cluster.create("copy-tx", partitions=1)
    cluster.create("copy-tx-to", partitions=1)
    for name, end in (("one", "commit_transaction"), ("two", "abort_transaction"), ("three", "")):
        writer = producer(cluster, **{"transactional.id": f"copy-{name}"})
        writer.init_transactions(30)
        writer.begin_transaction()
        writer.produce("copy-tx", name.encode())
        writer.flush(30)
        if end:
            getattr(writer, end)(30)
    for fields in ({}, {"start": "newest", "limit": 5}):
        assert copy("copy-tx", "copy-tx-to", **fields)["records"] == 1
    assert [value for _, _, value, *_ in read(cluster, "copy-tx-to", 1)] == [b"one", b"one"]
    writer.abort_transaction(30)


@pytest.mark.parametrize("transactional", [True, False])
def test_what_the_brokers_refuse_is_said_and_leaves_nothing(cluster: RealCluster, transactional: bool) -> None:
    to_topic = f"copy-refused-{transactional}"
    cluster.create(f"copy-large-{transactional}", partitions=1)
    cluster.create(to_topic, partitions=1, max_message_bytes="2000")
    writer = producer(cluster)
    for size in (10, 5000, 10):
        writer.produce(f"copy-large-{transactional}", b"x" * size)
        writer.flush(30)
    with pytest.raises(AirflowFailException, match="MSG_SIZE_TOO_LARGE"):
        copy(f"copy-large-{transactional}", to_topic, transactional=transactional)
    if transactional:
        assert read(cluster, to_topic, 1) == []


def test_a_copy_that_airflow_ends_holds_no_reader_up(cluster: RealCluster) -> None:
    """SIGTERM reaches the operator by `on_kill`, in the middle of its work. Without it the transaction stays open for
    ten minutes after the process is killed, and who reads committed records waits behind it."""
    cluster.create("copy-ended", partitions=1)
    cluster.create("copy-ended-to", partitions=1)
    writer = producer(cluster)
    for n in range(200_000):
        writer.produce("copy-ended", b"%d" % n * 20, partition=0)
        writer.poll(0)
    assert writer.flush(60) == 0
    operator = CopyRecordsOperator(task_id="c", topic="copy-ended", to_topic="copy-ended-to")
    before = signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())  # as Airflow's task runner does

    def end_it() -> None:
        while (writing := operator.writer) is None or writing.delivered.records < 1000:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end_it, daemon=True)
    ending.start()
    began = time.monotonic()
    try:
        with pytest.raises(Ended):
            run(operator, context(run_id="ended"))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - began < 30
    assert ends(cluster, "copy-ended-to", "read_uncommitted") > 1000

    def nothing_is_open() -> bool:  # the marker comes to the partition after the answer to who has aborted
        committed, written = (ends(cluster, "copy-ended-to", f"read_{kind}") for kind in ("committed", "uncommitted"))
        return committed == written

    eventually(nothing_is_open, "nothing is open")
    assert read(cluster, "copy-ended-to", 1) == []


def ends(cluster: RealCluster, topic: str, isolation: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "e", "isolation.level": isolation})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return int(high)
