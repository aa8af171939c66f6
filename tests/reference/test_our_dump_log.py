"""`logyard dump-log` and kafka-dump-log print the same, byte for byte, of the same files."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import Record, build
from logyard.broker.transactions import record_format
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored
from tests.support import dumped, kafka


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    kafka.jars_or_skip()
    root = tmp_path_factory.mktemp("dumped")
    return [dumped.write_log(root / "t-0"), dumped.write_oddities(root / "odd-0"), dumped.write_broken(root / "bad-0")]


def ours(*words: str) -> list[str]:
    command = [sys.executable, "-m", "logyard.cli.main", "dump-log", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout + done.stderr.partition("logyard: ")[0]).splitlines()


# All files of the healthy logs and the broken one are in each run: starting the original is what takes time.
@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (["*.log", "*.snapshot", "*.txnindex"], []),
        (["*.log"], ["--deep-iteration"]),
        (["*.log"], ["--print-data-log"]),
        (["*.log"], ["--print-data-log", "--skip-record-metadata", "--max-bytes", "1000"]),
        (["*.index", "*.timeindex"], []),
        (["*.index", "*.timeindex"], ["--verify-index-only"]),
        (["*.index", "*.timeindex"], ["--index-sanity-check"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_same_is_printed(directories: list[Path], patterns: Sequence[str], words: Sequence[str]) -> None:
    files = [str(file) for directory in directories for pattern in patterns for file in sorted(directory.glob(pattern))]
    named = ("--files", ",".join(files))
    assert ours(*words, *named) == kafka.tool("dump-log", *words, *named).splitlines()


def test_the_same_is_printed_of_transactions(tmp_path: Path) -> None:
    """Records as Kafka's coordinator writes them; one partition each: Kafka's tool shows several in a hash's order."""
    kafka.jars_or_skip()
    key, partitions = record_format.key("loader"), frozenset({TopicPartition("flights", 3)})
    values: list[bytes | None] = [
        record_format.value(Stored(4000, 3, 60_000, state, partitions if state else frozenset(), 1_700_000_000_123, 7))
        for state in State
    ]
    log = tmp_path / "00000000000000000000.log"
    records = [Record(n, 1_700_000_000_000, key, value, ()) for n, value in enumerate([*values, None])]
    unknown = Record(len(records), 1_700_000_000_000, b"\x00\x07rest", b"", ())
    log.write_bytes(build([*records, unknown]))
    words = ("--files", str(log), "--transaction-log-decoder")
    found = ours(*words)
    assert found == kafka.tool("dump-log", *words).splitlines()
    assert sum("state=" in line for line in found) == len(values)
