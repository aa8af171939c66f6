"""`logyard dump-log` of healthy and of broken files; tests/reference holds it against Kafka's own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.log import checkpoints
from logyard.broker.log.leader_epochs import EpochEntry
from logyard.broker.model import TopicPartition
from tests.support import dumped
from tests.support.logs import NOW

ZERO = "00000000000000000000"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumped.write_log(tmp_path_factory.mktemp("dumped") / "t-0")


def files(directory: Path, *suffixes: str) -> str:
    return ",".join(str(path) for suffix in suffixes for path in sorted(directory.glob(f"*{suffix}")))


def test_every_batch_and_record(run: Any, log: Path) -> None:
    status, out, err = run("dump-log", "--files", files(log, ".log"), "--deep-iteration")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"Dumping {log / ZERO}.log"
    assert lines[1] == "Log starting offset: 0"
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 lastSequence: 2 producerId: 7 producerEpoch: 0 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {NOW} size: "
    )
    assert lines[3] == f"| offset: 0 CreateTime: {NOW} keySize: 1 valueSize: 2 sequence: 0 headerKeys: []"
    assert sum(line.startswith("| offset: ") for line in lines) == 905
    assert sum("endTxnMarker: ABORT coordinatorEpoch: 2" in line for line in lines) == 4


def test_indexes_agree_with_the_log(run: Any, log: Path) -> None:
    named = files(log, ".index", ".timeindex")
    status, out, err = run("dump-log", "--files", named, "--verify-index-only")
    assert (status, err) == (0, "")
    assert all(line.startswith("Dumping ") or line.endswith(" is empty.") for line in out.splitlines())
    entries = run("dump-log", "--files", named)[1]
    assert "\noffset: " in entries
    assert "\ntimestamp: " in entries
    assert run("dump-log", "--files", named, "--index-sanity-check")[0] == 0


def test_snapshots_and_aborted_transactions(run: Any, log: Path) -> None:
    status, out, _ = run("dump-log", "--files", files(log, ".snapshot", ".txnindex"))
    assert status == 0
    assert "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty" in out
    assert out.count("version: 0 producerId: 8 ") == 4


def test_checkpoints(run: Any, tmp_path: Path, log: Path) -> None:
    status, out, _ = run("dump-log", "--files", f"{log}/leader-epoch-checkpoint,{log}/partition.metadata")
    assert (status, out.splitlines()[1]) == (0, "epoch: 0 startOffset: 0")
    assert "topic_id: AAAAAAAAAAAAAAAAAAAABQ" in out
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(checkpoints.encode_offsets({TopicPartition("t", 0): 7}))
    assert run("dump-log", "--files", str(path))[1].endswith("topic: t partition: 0 offset: 7\n")
    bad = tmp_path / "leader-epoch-checkpoint"
    bad.write_bytes(checkpoints.encode_epochs([EpochEntry(2, 0), EpochEntry(1, 5)]))
    status, _, err = run("dump-log", "--files", str(bad))
    assert (status, "epoch 1 at 5 follows" in err) == (1, True)


def test_what_a_record_may_be(run: Any, tmp_path: Path) -> None:
    path = dumped.write_oddities(tmp_path / "odd-0")
    status, out, err = run("dump-log", "--files", files(path, ".log"), "--print-data-log")
    assert status == 1  # offsets are missing, which Kafka's tool reports too
    assert err.splitlines()[:2] == [f"Non-consecutive offsets in {path / ZERO}.log", "  14 is followed by 19"]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f" compresscodec: {codec} " in out
    assert "sequence: -1 headerKeys: [h1,h2] key: key-0 payload: value value" in out
    assert "keySize: -1 valueSize: 2 sequence: -1 headerKeys: [] payload: \ufffd\ufffd\n" in out
    assert "keySize: 0 valueSize: -1 sequence: -1 headerKeys: [] key: \n" in out
    assert "sequence: 2147483647 headerKeys" in out
    assert "sequence: 0 headerKeys" in out
    assert "NoTimestampType: -1 keySize: 1 valueSize: 3 isValid: true crc: " in out
    assert out.count("} key: k payload: o") == 4


def test_broken_files_are_told_and_end_with_status_1(run: Any, tmp_path: Path) -> None:
    path = dumped.write_broken(tmp_path / "bad-0")
    status, out, err = run("dump-log", "--files", files(path, ".log"))
    assert (status, err) == (1, "logyard: these files have errors: see above\n")
    assert out.count("isvalid: false") == 1
    assert out.splitlines()[-1].startswith("Found ")
    status, _, err = run("dump-log", "--files", files(path, ".index", ".timeindex"), "--verify-index-only")
    assert status == 1
    assert f"Mismatches in :{path / ZERO}.index\n  Index offset: 3, log offset: 2\n" in err
    assert "Found timestamp mismatch in :" in err
    assert "Found out of order timestamp in :" in err


def test_a_codec_that_does_not_exist_ends_its_own_file_alone(run: Any, tmp_path: Path, log: Path) -> None:
    whole, *_ = sorted(log.glob("*.log"))
    broken = tmp_path / f"{ZERO}.log"
    data = bytearray(whole.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second + 22] |= 7  # the lowest bits of the batch's attributes
    broken.write_bytes(data)
    status, out, err = run("dump-log", "--files", f"{broken},{whole}")
    assert status == 1
    assert err.startswith(f"{broken} from position {second} on: compression type 7 does not exist\n")
    assert out.count("baseOffset: ") == 1 + run("dump-log", "--files", str(whole))[1].count("baseOffset: ")
    broken.with_suffix(".index").touch()
    index = broken.with_suffix(".timeindex")
    index.write_bytes(whole.with_suffix(".timeindex").read_bytes())
    assert f"{broken} from position {second} on: compression type 7" in run("dump-log", "--files", str(index))[2]


def test_an_index_that_is_being_written_is_no_fault(run: Any, tmp_path: Path) -> None:
    path = dumped.write_broken(tmp_path / "bad-0")
    (path / f"{ZERO}.index").write_bytes(bytes(80))
    assert run("dump-log", "--files", files(path, ".index")) == (
        0,
        f"Dumping {path / ZERO}.index\noffset: 0 position: 0\n",
        "",
    )
    data = (path / f"{ZERO}.log").read_bytes()
    (path / f"{ZERO}.log").write_bytes(data[12 + int.from_bytes(data[8:12], "big") :])
    status, _, err = run("dump-log", "--files", files(path, ".index"))
    assert (status, err) == (0, f"Mismatches in :{path / ZERO}.index\n  Index offset: 0, log offset: 1\n")


def test_what_cannot_be_dumped(run: Any, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert run("dump-log", "--files", str(other))[::2] == (0, f"Ignoring unknown file {other}\n")
    assert run("dump-log", "--files", str(tmp_path / "none"))[::2] == (
        1,
        f"logyard: --files {tmp_path / 'none'}: No such file or directory\n",
    )
    assert run("dump-log", "--files", str(tmp_path))[::2] == (
        1,
        f"logyard: --files {tmp_path}: this is a directory: name files in it\n",
    )
    status, _, err = run("dump-log", "--files", str(tmp_path / f"{ZERO}.log"))
    assert (status, err) == (1, f"logyard: --files {tmp_path / ZERO}.log: No such file or directory\n")
    (tmp_path / "x.log").write_bytes(b"")
    assert "begins with an offset" in run("dump-log", "--files", str(tmp_path / "x.log"))[2]
    (tmp_path / f"{ZERO}.log").write_bytes(bytes(200))
    assert "Found record size 0 smaller" in run("dump-log", "--files", str(tmp_path / f"{ZERO}.log"))[2]


def test_a_reader_that_has_seen_enough(log: Path) -> None:
    command = [sys.executable, "-m", "logyard.cli.main", "dump-log", "--deep-iteration", "--files", files(log, ".log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (1, "")


CUTTING = """
import os, sys
from pathlib import Path
from logyard.broker.errors import CorruptData
from logyard.cli.dump_log import text

path = Path(sys.argv[1])
dump = text.dump_index if path.suffix == ".index" else text.dump_time_index if path.suffix == ".timeindex" else None
kinds = dict(sanity_only=False, verify_only=False)
lines = dump(path, text.Faults(), **kinds) if dump else text.dump_log(path, text.Detail(), text.Faults())
print(next(lines), next(lines), sep="\\n")
os.truncate(path.with_suffix(".log"), 70)
try:
    print(*lines, sep="\\n")
except CorruptData as problem:
    print(problem)
"""


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_log_that_another_process_cuts_meanwhile(log: Path, tmp_path: Path, suffix: str) -> None:
    """The dump was ended by SIGBUS, without a word, where it had mapped the file."""
    for path in log.glob(f"{ZERO}.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    command = [sys.executable, "-c", CUTTING, str(tmp_path / f"{ZERO}{suffix}")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1].startswith(f"{tmp_path / ZERO}.log was cut to ")
