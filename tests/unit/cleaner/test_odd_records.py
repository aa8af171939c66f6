"""Logs that a leader has accepted, or a disk has changed, which a cleaner must not believe."""

import gzip
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from crc32c import crc32c

from logyard.broker.cleaner import cleaning, compiled_passes, plain_passes
from logyard.broker.cleaner.engines import Engines
from logyard.broker.cleaner.leased_log import Json
from logyard.broker.cleaner.passes import Engine
from logyard.broker.clock import ManualClock
from logyard.broker.compiled import chunks
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import read_whole
from tests.support.batches import GZIP, HORIZON, ZSTD, Batch, Rec, batch, read_back, records_of
from tests.unit.cleaner.test_engines import LARGE, lease_of

LONG_MAX = 2**63 - 1
PART = f"/lease/parts/{0:020d}.part"


class Yard:
    """A leased log of one segment, whose last offset is `last`: by default one for each batch."""

    def __init__(self, batches: Sequence[bytes], last: int | None = None) -> None:
        self.disk = MemoryDisk(ManualClock().now_ms)
        self.lease = lease_of(self.disk, "/lease", list(batches), 1)
        if last is not None:
            self.lease["segments"][0]["last_offset"], self.lease["end_offset"] = last, last + 1

    def cleaned(self, engine: Engine) -> Json:
        request = {"lease": self.lease, "keys_max": 100}
        return cleaning.answer(request, self.disk, cleaning.unthrottled, engine)

    def part(self) -> bytes:
        return read_whole(self.disk, PART)


def one(offset: int, key: bytes = b"k", value: bytes | None = b"v") -> bytes:
    return batch([Rec(offset, key, value)]).encode()


def with_body(whole: bytes, body: bytes, count: int | None = None) -> bytes:
    """The v2 batch with another body, and perhaps another count."""
    out = bytearray(whole[:61] + body)
    out[8:12] = struct.pack(">i", len(out) - 12)
    if count is not None:
        out[57:61] = struct.pack(">i", count)
    out[17:21] = struct.pack(">I", crc32c(bytes(out[21:])))
    return bytes(out)


def at(offset: int, whole: bytes) -> bytes:
    """The batch with another base offset, which its checksum does not cover."""
    return struct.pack(">q", offset) + whole[8:]


engines = pytest.mark.parametrize("engine", [plain_passes.ENGINE, compiled_passes.ENGINE], ids=lambda e: e.name)


@engines
@pytest.mark.parametrize("clean_offset", [0, 5])
@pytest.mark.parametrize(
    ("offsets", "first_counts"),
    [([1000], False), ([-1], False), ([0, 0], True), ([1, 0], True), ([0, LONG_MAX], True)],
    ids=str,
)
def test_a_record_that_is_not_where_its_batch_is_supersedes_nothing_and_stays(
    engine: Engine, offsets: list[int], first_counts: bool, clean_offset: int
) -> None:
    odd = at(1, Batch(0, len(offsets) - 1, tuple(Rec(offset, b"k", b"odd") for offset in offsets)).encode())
    for behind in (b"k", b"other"):
        yard = Yard([one(0), odd, *(one(n, behind) for n in range(3, 7))], last=6)
        yard.lease["clean_offset"] = clean_offset
        assert "failed" not in yard.cleaned(engine)
        stays = behind == b"other" and (not first_counts or clean_offset > 2)
        assert yard.part() == (one(0) if stays else b"") + odd + one(6, behind)


@engines
@pytest.mark.parametrize(("number", "offset"), [(2, 0), (2, 1), (2, 100), (0, -5), (4, 5), (4, 2**40), (2, LONG_MAX)])
def test_a_base_offset_that_a_disk_has_changed_is_refused(engine: Engine, number: int, offset: int) -> None:
    batches = [one(n, b"k%d" % n) for n in range(5)]
    batches[number] = at(offset, batches[number])
    answer = Yard(batches).cleaned(engine)
    assert answer["failed"] == "corrupt"
    assert "its offsets do not follow those before it, or are not its segment's" in answer["message"]


@engines
def test_tombstones_that_stay_for_ever(engine: Engine) -> None:
    yard = Yard([one(0), one(1), one(2, value=None), one(3, b"other")])
    yard.lease["config"]["delete.retention.ms"] = LONG_MAX
    assert "failed" not in yard.cleaned(engine)
    stamped = [seen for seen in read_back(yard.part()) if seen.attributes & HORIZON]
    assert [(seen.base, seen.base_timestamp) for seen in stamped] == [(2, LONG_MAX)]


@engines
def test_bytes_after_a_compressed_stream_are_left_out_as_javas_clients_do(engine: Engine) -> None:
    records = [Rec(0, b"k", b"v"), Rec(1, b"other", b"v")]
    plain = batch(records).encode()[61:]
    odd = with_body(batch(records, codec=GZIP).encode(), gzip.compress(plain, mtime=0) + b"after")
    yard = Yard([odd, one(2)], last=2)
    assert "failed" not in yard.cleaned(engine)
    assert [record.offset for record in records_of(yard.part())] == [1, 2]


@engines
def test_a_record_larger_than_can_be_held_is_cleaned(engine: Engine) -> None:
    large = batch([Rec(0, b"large", bytes(65 << 20))], codec=ZSTD).encode()
    yard = Yard([large, one(1), one(2)])
    assert "failed" not in yard.cleaned(engine)
    assert yard.part() == large + one(2)


@engines
def test_a_count_that_is_not_looked_at_costs_nothing(engine: Engine) -> None:
    hostile = [with_body(one(n), one(n)[61:], 2**31 - 1) for n in range(2, 500)]
    yard = Yard([one(0), one(1), *hostile], last=499)
    yard.lease["end_offset"] = 2
    assert "failed" not in yard.cleaned(engine)
    assert yard.part() == one(1) + b"".join(hostile)


def chosen() -> tuple[Engines, list[str]]:
    """Engines that have loaded the compiled one, and what they say."""
    said: list[str] = []
    made = Engines(said.append)
    made.choose(LARGE)
    return made, said


def test_chunks_that_become_large_are_cleaned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer can send 4 MiB that decompress to gigabytes; tombstones and transactions are opened by the survey."""
    most = 0

    def looked_at(*words: Any) -> Iterator[tuple[chunks.Chunk, list[chunks.Damage]]]:
        nonlocal most
        for part, damages in plain(*words):
            assert part.raw is not None
            most = max(most, len(part.raw))
            yield part, damages

    plain = chunks.opened_parts
    monkeypatch.setattr(chunks, "opened_parts", looked_at)
    monkeypatch.setattr(chunks, "PART_BYTES", 2 << 20)
    large = [batch([Rec(n, b"k%d" % (n % 2), bytes(1 << 20))], codec=ZSTD).encode() for n in range(8)]
    gone = batch([Rec(8, b"k0", None), Rec(9, b"k2", bytes(1 << 20))], codec=ZSTD).encode()
    yard = Yard([*large, gone], last=9)
    assert "failed" not in yard.cleaned(compiled_passes.ENGINE)
    assert [record.offset for record in records_of(yard.part())] == [7, 8, 9]
    assert 2 << 20 <= most < 4 << 20
    made = yard.part()
    yard = Yard([*large, gone], last=9)
    assert "failed" not in yard.cleaned(plain_passes.ENGINE)
    assert yard.part() == made


def test_where_both_engines_fail_the_compiled_one_is_not_to_blame() -> None:
    yard, (made, said) = Yard([one(0), one(1)]), chosen()

    def fails(_size: int) -> None:
        raise ZeroDivisionError

    assert made.answer({"lease": yard.lease, "keys_max": 100}, yard.disk, fails)["failed"] == "error"
    assert (made.choose(LARGE).name, said) == ("compiled", [])


def test_where_memory_is_short_the_log_is_tried_again() -> None:
    yard = Yard([one(0), one(1)])

    def fails(_size: int) -> None:
        raise MemoryError("no room")

    answer = cleaning.answer({"lease": yard.lease, "keys_max": 100}, yard.disk, fails)
    assert answer == {"failed": "storage", "message": "memory is short: no room"}
