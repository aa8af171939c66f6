"""Message formats v0 and v1 as Apache Kafka's broker writes them, compacted by its LogCleaner and by ours.

Kafka leads and converts what a modern producer sends (`message.format.version` below an inter-broker protocol of 3.0);
a broker of ours follows, so both have the same bytes.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka import TopicPartition as Named
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from logyard.broker.cleaner import cleaning
from logyard.broker.log import checkpoints
from logyard.broker.log.disk.real import OsDisk
from logyard.broker.log.segment import scan
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch, legacy
from logyard.spark_jobs.audit.segment import SegmentAudit, SegmentAuditor
from logyard.spark_jobs.segments.replicas import of_partition_directory
from logyard.spark_jobs.segments.splits import Range, plan_splits, split_rows
from tests.support import kafka
from tests.support.real_cluster import RealCluster, eventually

pytestmark = pytest.mark.timeout(600)

IBP = {
    "inter.broker.protocol.version": "2.8",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.dedupe.buffer.size": "20000000",
    "log.retention.check.interval.ms": "1000",
}
FORMATS = {"v0": "0.9.0", "v1": "0.10.0", "v1-append-time": "0.10.0"}
CODECS = ("none", "gzip", "snappy", "lz4")
Row = tuple[int, bytes | None, bytes | None, int]


def create(cluster: RealCluster, topic: str) -> None:
    config = {
        "message.format.version": FORMATS[topic],
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1.0",
        "segment.bytes": "8000",
        "delete.retention.ms": "3600000",
        "file.delete.delay.ms": "100",
    }
    if topic.endswith("append-time"):
        config["message.timestamp.type"] = "LogAppendTime"
    admin = cluster.admin()
    new = NewTopic(topic, num_partitions=1, replica_assignment=[[0, 1]], config=config)
    admin.create_topics([new], operation_timeout=20)[topic].result(30)


def alter(cluster: RealCluster, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = cluster.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def send(cluster: RealCluster, topic: str, codec: str, start: int, count: int) -> None:
    """Batches of twenty, forty keys, every ninth a tombstone."""
    conf: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 50}
    producer = Producer({**conf, "compression.type": codec, "batch.num.messages": 20})
    for n in range(start, start + count):
        value = None if n % 9 == 0 else b"%s %d " % (codec.encode(), n) * (1 + n % 4)
        producer.produce(topic, value, b"k%d" % (n * 7 % 40))
        if n % 20 == 19:
            producer.flush(30)
    producer.flush(30)


def rows_of(directory: Path) -> list[Row]:
    """Every record of a partition's directory."""
    found: list[Row] = []
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        for at, header in batch.iter_headers(data):
            part = data[at : at + header.length]
            opened = legacy.legacy_records(part) if header.magic < 2 else batch.records(part)
            found += [(r.offset, r.key, r.value, r.timestamp) for r in opened]
    return found


def wrappers(directory: Path) -> list[tuple[int, int, int, int]]:
    """Magic, codec, last offset and timestamp of every batch that holds records."""
    found = []
    for path in sorted(directory.glob("*.log")):
        for _, h in batch.iter_headers(memoryview(path.read_bytes())):
            if h.count:
                found.append((h.magic, h.compression, h.last_offset, h.max_timestamp))
    return found


def clean_offset(folder: Path, topic: str) -> int:
    path = folder / "cleaner-offset-checkpoint"
    known = checkpoints.decode_offsets(path.read_bytes()) if path.exists() else {}
    return known.get(TopicPartition(topic, 0), 0)


def cleaned_by_ours(directory: Path, end: int, aside: Path, clean: int = 0) -> list[Row]:
    """What the built-in cleaner makes of the closed segments below `end`, and the rest as it is."""
    disk = OsDisk()
    links, parts = aside / "links", aside / "parts"
    shutil.copytree(directory, links)
    parts.mkdir()
    bases = sorted(int(p.stem) for p in directory.glob("*.log"))
    rows = []
    for base, following in pairwise(bases):
        if base < end:
            path = links / f"{base:020d}.log"
            file = disk.open(str(path))
            last = [place.last_offset for place in scan.places(file.read_at, 0, file.size())][-1]
            assert last == following - 1
            said = {"base_offset": base, "last_offset": last, "size": file.size(), "max_timestamp": -1}
            mtime = int(path.stat().st_mtime * 1000)
            rows.append({**said, "mtime_ms": mtime, "files": {"log": file.size(), "index": 0}})
    lease = {
        "topic": directory.name.rpartition("-")[0],
        "partition": 0,
        "leader_epoch": 0,
        "now_ms": 1_900_000_000_000,
        "clean_offset": clean,
        "end_offset": end,
        "segments": rows,
        "links_dir": str(links),
        "parts_dir": str(parts),
        "producers": [],
        "aborted_transactions": [],
        "config": {"segment.bytes": 8000, "segment.index.bytes": 10**7, "delete.retention.ms": 3_600_000},
    }
    made = cleaning.clean(lease, 10**6, disk, cleaning.unthrottled)
    for group in made["groups"]:
        for base in group["segments"]:
            (links / f"{base:020d}.log").unlink()
    for path in parts.glob("*.part"):
        path.rename(links / f"{path.stem}.log")
    return rows_of(links)


def model(rows: Sequence[Row], end: int) -> list[Row]:
    """What stays: the last of each key below `end`, and everything from there on."""
    last = {r[1]: r for r in rows if r[1] is not None and r[0] < end}
    return sorted([*last.values(), *(r for r in rows if r[0] >= end)])


def exported(directory: Path) -> list[Row]:
    replica = of_partition_directory(str(directory))
    columns = ("offset", "key", "value", "timestamp")
    splits = plan_splits(Range(replica, 0, 10**9), committed_only=True, columns=columns, split_bytes=3000)
    tables = [part.to_pydict() for split in splits for part, _ in split_rows(split)]
    return [
        (o, k, v, round(t.timestamp() * 1000))
        for table in tables
        for o, k, v, t in zip(table["offset"], table["key"], table["value"], table["timestamp"], strict=True)
    ]


def audited(directory: Path) -> list[Any]:
    replica = of_partition_directory(str(directory))
    auditors = [SegmentAuditor(SegmentAudit(s, True, (), True, -1)) for s in replica.segments]
    for auditor in auditors:
        auditor.run()
    return [f.message for auditor in auditors for f in auditor.findings]


def test_both_cleaners_keep_the_same_of_the_same_bytes(tmp_path: Path) -> None:
    kafka.jars_or_skip()
    before: dict[str, list[Row]] = {}
    with kafka.running(tmp_path / "cluster", "KO", IBP) as cluster:
        folders = [tmp_path / "cluster" / f"broker-{n}" / "data" for n in (0, 1)]
        for topic in FORMATS:
            create(cluster, topic)
            eventually(lambda topic=topic: cluster.isrs_full(topic), "in sync", 60)
            for round_ in range(2):
                for number, codec in enumerate(CODECS):
                    send(cluster, topic, codec, (round_ * len(CODECS) + number) * 240, 240)
            alter(cluster, topic, "message.format.version", "2.8")
            start = 2000
            while 2 not in {m for m, _, _, _ in wrappers(folders[0] / f"{topic}-0")}:
                assert start < 10_000, "the broker still writes the old format"
                send(cluster, topic, "lz4", start, 20)
                start += 20
            send(cluster, topic, "lz4", start, 200)
            eventually(lambda topic=topic: cluster.isrs_full(topic), "in sync", 60)
        copies = {topic: tmp_path / "copy" / f"{topic}-0" for topic in FORMATS}
        for topic, copy in copies.items():
            kafkas, ours = (rows_of(folder / f"{topic}-0") for folder in folders)
            assert kafkas == ours, "a follower has its leader's bytes"
            shutil.copytree(folders[0] / f"{topic}-0", copy)
            before[topic] = kafkas
            magics = {m for m, _, _, _ in wrappers(copy)}
            assert magics == {2, 0 if topic == "v0" else 1}
            assert {c for m, c, _, _ in wrappers(copy) if m < 2} == {0, 1, 2, 3}
            assert exported(copy) == kafkas
            assert audited(copy) == []
        for topic in FORMATS:
            alter(cluster, topic, "min.cleanable.dirty.ratio", "0.01")
        for topic in FORMATS:
            active = [max(int(p.stem) for p in (f / f"{topic}-0").glob("*.log")) for f in folders]
            for folder, base in zip(folders, active, strict=True):
                eventually(lambda f=folder, t=topic, b=base: clean_offset(f, t) >= b, f"{topic} cleaned", 90)

    for topic, copy in copies.items():
        ends = [clean_offset(folder, topic) for folder in folders]
        directories = [folder / f"{topic}-0" for folder in folders]
        by_kafka, by_ours = (rows_of(d) for d in directories)
        assert by_kafka == model(before[topic], ends[0]), topic
        assert by_ours == model(before[topic], ends[1]), topic
        assert cleaned_by_ours(copy, ends[0], tmp_path / "aside" / topic) == by_kafka, topic
        again = wrappers(tmp_path / "aside" / topic / "links")
        assert again == wrappers(directories[0]), "magic, codec, offset and time of each wrapper"
        for directory in directories:
            assert exported(directory) == rows_of(directory)
            assert audited(directory) == []
        logs = sorted(directories[1].glob("*.log"))
        said = kafka.tool("dump-log", "--deep-iteration", "--files", ",".join(map(str, logs)))
        assert "isvalid: false" not in said
        assert "Found" not in said, said[-2000:]


def test_tombstones_go_by_the_age_of_their_segment(tmp_path: Path) -> None:
    """What a second cleaning takes of the tombstones that the first one left, some of them in old files.

    Between the two the broker of ours leads, and follows again: a log of old messages, of which Kafka keeps no epochs.
    """
    kafka.jars_or_skip()
    topic, day = "v1", 86_400
    with kafka.running(tmp_path / "cluster", "KO", IBP) as cluster:
        directory, ours = (tmp_path / "cluster" / f"broker-{n}" / "data" / f"{topic}-0" for n in (0, 1))
        folder = directory.parent
        create(cluster, topic)
        eventually(lambda: cluster.isrs_full(topic), "in sync", 60)

        def clean() -> int:
            base = max(int(p.stem) for p in directory.glob("*.log"))
            alter(cluster, topic, "min.cleanable.dirty.ratio", "0.01")
            eventually(lambda: clean_offset(folder, topic) >= base, "cleaned", 90)
            alter(cluster, topic, "min.cleanable.dirty.ratio", "1.0")
            return base

        def forget(start: int, count: int) -> None:
            """Tombstones of keys that nothing else has."""
            refused: list[Any] = []
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "compression.type": "snappy"})
            for n in range(start, start + count):
                key = b"gone %d " % n + os.urandom(90)
                producer.produce(topic, None, key, on_delivery=lambda error, _: error and refused.append(error))
                if n % 5 == 4:
                    producer.flush(60)
            assert producer.flush(60) == 0
            assert refused == []

        forget(0, 600)
        first = clean()
        cluster.cluster.stop_broker(0)
        closed = [p for p in sorted(directory.glob("*.log")) if int(p.stem) < first]
        assert len(closed) > 4
        now = closed[-1].stat().st_mtime
        for number, path in enumerate(closed[:-1]):
            age = (2 * day, 3600 + 60, 3600 - 60)[number % 3]
            os.utime(path, (now - age, now - age))
        eventually(lambda: cluster.describe(topic)[0].leader == 1, "the broker of ours leads", 60)
        cluster.cluster.start_broker(0)
        eventually(lambda: cluster.describe(topic)[0].leader == 0 or elect(cluster, topic), "leads", 60)
        forget(600, 200)
        eventually(lambda: cluster.isrs_full(topic), "in sync", 60)
        cluster.cluster.stop_broker(0)
        copy = tmp_path / "copy" / f"{topic}-0"
        shutil.copytree(directory, copy)
        assert {magic for magic, _, _, _ in wrappers(copy)} == {1}
        written = [[row for row in rows_of(d) if row[0] >= 600] for d in (copy, ours)]
        assert len(written[0]) == 200
        assert written[1] == written[0]
        cluster.cluster.start_broker(0)
        end = clean()
    before, by_kafka = rows_of(copy), rows_of(directory)
    assert 200 < len(by_kafka) < len(before), "some went, some stayed"
    assert cleaned_by_ours(copy, end, tmp_path / "aside", first) == by_kafka


def elect(cluster: RealCluster, topic: str) -> bool:
    """Ask for the preferred leader; whether it leads is asked again."""
    admin = cluster.admin()
    with suppress(KafkaException):
        admin.elect_leaders(ElectionType.PREFERRED, [Named(topic, 0)]).result(30)
    return False
