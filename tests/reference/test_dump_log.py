"""Apache Kafka's own kafka-dump-log reads every file we write: batches, indexes, snapshots."""

import re
from pathlib import Path

import pytest

from tests.support import dumped, kafka


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed log with two producers, aborted transactions, epochs and several segments."""
    kafka.jars_or_skip()
    return dumped.write_log(tmp_path_factory.mktemp("logs") / "t-0")


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
    assert "producerId: 8 firstOffset: 184 lastOffset: 361 lastStableOffset: 362" in text
    assert text.count("lastStableOffset") == 4
    newest = text[text.index("00000000000000000905.snapshot") :]
    assert "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty" in newest
    assert "producerId: 8 producerEpoch: 0 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong.empty" in newest
    assert "firstSequence: 447 lastSequence: 449 lastOffset: 903 offsetDelta: 2" in newest
