"""Records of `__transaction_state` as Kafka's tool tells them."""

import struct
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.records.batch import Record, build
from logyard.cli.dump_log import transaction_log


def string(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


KEY = struct.pack(">h", 0) + string("loader")


def value(state: int, topics: bytes) -> bytes:
    return struct.pack(">hqhib", 0, 4000, 3, 60_000, state) + topics + struct.pack(">qq", 1_700_000_000_123, 7)


ONE_TOPIC = struct.pack(">i", 1) + string("flights") + struct.pack(">iii", 2, 0, 4)
NONE = struct.pack(">i", -1)


def test_an_open_transaction_its_end_and_a_tombstone() -> None:
    key = "transaction_metadata::transactionalId=loader"
    end = "txnLastUpdateTimestamp=1700000000123,txnTimeoutMs=60000"
    assert transaction_log.decode(0, KEY, value(1, ONE_TOPIC)) == (
        key,
        f"producerId:4000,producerEpoch:3,state=Ongoing,partitions=[flights-0,flights-4],{end}",
    )
    assert transaction_log.decode(0, KEY, value(0, NONE))[1] == (
        f"producerId:4000,producerEpoch:3,state=Empty,partitions=[],{end}"
    )
    assert transaction_log.decode(0, KEY, None) == (key, "<DELETE>")


@pytest.mark.parametrize(
    ("key", "data", "said"),
    [
        (b"\x00\x02rest", b"", "unknown::version=2"),
        (KEY, b"\x00\x01", "Error at offset 5, skipping. version 1 is not supported"),
        (KEY, value(8, NONE), "Error at offset 5, skipping. state 8 is not known"),
        (KEY, value(1, ONE_TOPIC)[:-1], "Error at offset 5, skipping. 57 bytes are too few"),
        (KEY[:-1], None, "Error at offset 5, skipping. 9 bytes are too few"),
    ],
)
def test_what_cannot_be_read(key: bytes, data: bytes | None, said: str) -> None:
    assert transaction_log.decode(5, key, data) == (said, None)


def test_a_record_without_a_key() -> None:
    with pytest.raises(ValueError, match=r"offset 5 .*missing key"):
        transaction_log.decode(5, None, b"")


def test_the_command_shows_them(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build([Record(0, 9, KEY, value(4, ONE_TOPIC), ()), Record(1, 9, KEY, None, ())]))
    status, out, _ = run("dump-log", "--files", str(log), "--transaction-log-decoder")
    assert status == 0
    shown = [line for line in out.splitlines() if line.startswith("|")]
    assert "key: transaction_metadata::transactionalId=loader payload: producerId:4000," in shown[0]
    assert "state=CompleteCommit" in shown[0]
    assert shown[1].endswith("payload: <DELETE>")
