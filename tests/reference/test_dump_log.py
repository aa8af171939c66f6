"""Apache Kafka's own kafka-dump-log reads every file we write: batches, indexes, snapshots."""

import re
import uuid
from pathlib import Path

import pytest

from logyard.broker.log.disk import OsDisk
from logyard.broker.log.log import Origin, PartitionLog
from logyard.broker.records import batch
from logyard.broker.topic_config import TopicConfig
from logyard.cli import main as entry
from tests.support import kafka
from tests.support.logs import NOW, TP, marker, produced


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed log with two producers, aborted transactions, epochs and several segments."""
    kafka.jars_or_skip()
    path = tmp_path_factory.mktemp("logs") / "t-0"
    config = TopicConfig(segment_bytes=20_000, index_interval_bytes=500)
    log = PartitionLog.create(OsDisk(), TP, str(path), config, now_ms=NOW)
    log.assign_topic_id(uuid.UUID(int=5))
    sequences = {7: 0, 8: 0}
    for number in range(300):
        producer_id = 7 + number % 2
        data = produced(
            [b"v%d" % number] * 3,
            timestamp=NOW + number * 10,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
            transactional=producer_id == 8,
        )
        log.append_as_leader(data, number // 100, now_ms=NOW)
        sequences[producer_id] += 3
        if number % 60 == 59:
            abort = marker(batch.ABORT, producer_id=8)
            log.append_as_leader(abort, number // 100, now_ms=NOW, origin=Origin.COORDINATOR)
    log.close()
    return path


def dump(*options: str, files: list[Path]) -> str:
    return kafka.tool("dump-log", *options, "--files", ",".join(str(file) for file in files))


def test_every_batch_is_valid_and_every_record_is_read(directory: Path) -> None:
    text = dump("--deep-iteration", files=sorted(directory.glob("*.log")))
    assert text.count("isvalid: true") == 305
    assert "isvalid: false" not in text
    offsets = [int(found) for found in re.findall(r"\| offset: (\d+) ", text)]
    assert offsets == list(range(905))


def test_indexes_point_where_they_should(directory: Path) -> None:
    files = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    text = dump("--verify-index-only", files=files)
    assert text.count("Dumping") == len(files)
    assert not re.search("(?i)mismatch|not found|out of order", text)
    sane = dump("--index-sanity-check", files=files)
    assert sane.count("passed sanity check") == len(files)


def test_transactions_and_snapshots_are_read(directory: Path) -> None:
    text = dump(files=sorted([*directory.glob("*.txnindex"), *directory.glob("*.snapshot")]))
    assert "producerId: 8 firstOffset: 3 lastOffset: 180 lastStableOffset: 181" in text
    assert text.count("lastStableOffset") == 5
    newest = text[text.index("00000000000000000905.snapshot") :]
    assert "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty" in newest
    assert "firstSequence: 447 lastSequence: 449 lastOffset: 903 offsetDelta: 2" in newest


OPTIONS = (
    ("*.log", ()),
    ("*.log", ("--deep-iteration",)),
    ("*.log", ("--print-data-log",)),
    ("*.index", ()),
    ("*.timeindex", ()),
    ("*.txnindex", ()),
    ("*.snapshot", ()),
    ("*.index", ("--verify-index-only",)),
    ("*.index", ("--index-sanity-check",)),
)


@pytest.mark.parametrize(("pattern", "options"), OPTIONS)
def test_our_command_prints_what_kafkas_does(
    directory: Path, pattern: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(directory.glob(pattern))
    assert files
    entry.main(["dump-log", *options, "--files", ",".join(str(file) for file in files)])
    assert capsys.readouterr().out == dump(*options, files=files)
