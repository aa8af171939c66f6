"""Segments that are cut, torn, doubled, or made by a hostile producer or leader: the compiled passes of the cleaner
write what the plain ones write, or refuse the log, which then goes to the plain ones. Neither fails in another way than
by refusing."""

import random
import struct
import zlib
from collections.abc import Callable, Sequence

import pytest
from crc32c import crc32c

from logyard.broker.cleaner import cleaning, compiled_passes, plain_passes
from logyard.broker.cleaner.leased_log import Json
from logyard.broker.cleaner.passes import Engine
from logyard.broker.clock import ManualClock
from logyard.broker.compaction.decision import ActiveProducer, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.errors import CorruptData
from logyard.broker.log.disk.memory import MemoryDisk
from logyard.broker.log.disk.port import read_whole, write_whole
from tests.properties.test_compaction_model import cut, producers_of
from tests.support import compaction_model as model
from tests.support.old_logs import AnyBatch, random_old_log
from tests.support.whole_segments import survey_segments

LONG_MAX, INT_MAX = 2**63 - 1, 2**31 - 1
INTS = (-1, 0, 1, 2, INT_MAX, -INT_MAX - 1, 1000, 100_000)
LONGS = (-1, 0, 1, LONG_MAX, -LONG_MAX - 1, 2**40, -(2**40), 1000)
ENGINES = (plain_passes.ENGINE, compiled_passes.ENGINE)

Outcome = tuple[Json, list[bytes]]
"""What an engine answers, and the parts it writes; None where it refuses the log."""
Torn = Callable[[random.Random, bytearray], list[bytes]]


def sealed(batch: bytearray) -> bytes:
    """The batch with its own length, and a checksum that is right."""
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    if batch[16] == 2 and len(batch) >= 61:
        batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    else:
        batch[12:16] = struct.pack(">I", zlib.crc32(bytes(batch[16:])))
    return bytes(batch)


def varint(value: int, size: int = 1) -> bytes:
    """A zigzag varint of 64 bits, of at least `size` bytes."""
    rest, out = ((value << 1) ^ (value >> 63)) & (2**64 - 1), bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    while len(out) < size:
        out[-1] |= 128
        out.append(0)
    return bytes(out)


# -- what happens to one batch


def field(at: int, form: str, values: Sequence[int], near: Sequence[int] = ()) -> Torn:
    """A number of a v2 header becomes another: one of `values`, or off by one of `near`."""

    def tear(rng: random.Random, batch: bytearray) -> list[bytes]:
        (now,) = struct.unpack_from(form, batch, at)
        wrong = rng.choice([*values, *(now + n for n in near)])
        bits = 8 * struct.calcsize(form)
        struct.pack_into(form, batch, at, (wrong + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1))
        return [sealed(batch)]

    return tear


def bits(rng: random.Random, batch: bytearray) -> list[bytes]:
    batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
    return [bytes(batch)]


def length(rng: random.Random, batch: bytearray) -> list[bytes]:
    batch[8:12] = struct.pack(">i", rng.choice([*INTS, 14, 49, 48, 5, len(batch) - 11, len(batch) - 13]))
    return [bytes(batch)]


def magic(rng: random.Random, batch: bytearray) -> list[bytes]:
    batch[16] = rng.choice([0, 1, 2, 3, 0x82, 255])
    return [sealed(batch)]


def attributes(rng: random.Random, batch: bytearray) -> list[bytes]:
    batch[22] = rng.choice([batch[22] ^ 1 << rng.randrange(8), batch[22] & 0xF8 | rng.randrange(8)])
    return [sealed(batch)]


def body(rng: random.Random, batch: bytearray) -> list[bytes]:
    start = 61 if batch[16] == 2 else 16
    for _ in range(rng.choice([1, 1, 2])):
        if len(batch) > start:
            batch[rng.randrange(start, len(batch))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
    return [sealed(batch)]


def shorter(rng: random.Random, batch: bytearray) -> list[bytes]:
    least = 61 if batch[16] == 2 else 26
    del batch[rng.randrange(min(least, len(batch)), len(batch) + 1) :]
    return [sealed(batch)]


def longer(rng: random.Random, batch: bytearray) -> list[bytes]:
    return [sealed(batch + rng.randbytes(rng.randrange(1, 20)))]


def records(rng: random.Random, batch: bytearray) -> list[bytes]:
    """Records of a hostile client: oversize varints, negative sizes, offsets that are not the batch's, odd headers."""

    # The reader in C takes numbers of too many bytes; that in Python, which has names that are not UTF-8, does not.
    sizes, names = rng.choice([((1,), (b"h", b"", b"\xff", None)), ((1, 1, 1, 2, 5, 6, 10), (b"h", b"", None))])

    def number(value: int) -> bytes:
        return varint(value, rng.choice(sizes))

    def sized(content: bytes | None) -> bytes:
        size = rng.choice([-1, -1, -2, -(2**31), -(2**62)]) if content is None else len(content)
        return number(size) + (content or b"")

    def record(n: int) -> bytes:
        times, offsets = (0, 1, -1, 2**62, -LONG_MAX - 1), (n, n, n, n, n + 1, 0, 5, -1, INT_MAX, LONG_MAX)
        out = b"\0" + number(rng.choice(times)) + number(rng.choice(offsets))
        out += sized(rng.choice([b"k1", b"k2", b""])) + sized(rng.choice([None, b"v", b""]))
        headers = rng.choice([0, 0, 2])
        out += number(headers)
        for _ in range(headers):
            out += sized(rng.choice(names)) + sized(rng.choice([None, b"x"]))
        return number(rng.choice([len(out)] * 9 + [0, -1, -60])) + out

    if batch[16] != 2 or batch[22] & 7:
        return [bytes(batch)]
    count = rng.randrange(1, 4)
    struct.pack_into(">i", batch, 57, rng.choice([count, count, count, INT_MAX]))
    struct.pack_into(">i", batch, 23, rng.choice([count - 1, count - 1, count + 3, 0]))
    batch[61:] = b"".join(map(record, range(count)))
    return [sealed(batch)]


OF_V2: tuple[Torn, ...] = (
    field(57, ">i", INTS, (-1, 1)),  # the count
    field(23, ">i", INTS, (-1, 1, 3)),  # the last offset delta
    field(0, ">q", LONGS, (-64, -5, -1, 1, 5, 64)),  # the base offset
    field(27, ">q", LONGS),  # the first and the largest time
    field(35, ">q", LONGS),
    field(43, ">q", (*LONGS, 1, 2, 3, 7)),  # the producer
    field(51, ">h", (-1, 0, 1)),
    attributes,
    records,
    records,
)
OF_ANY: tuple[Torn, ...] = (
    bits,
    length,
    magic,
    body,
    body,
    shorter,
    longer,
    lambda rng, batch: [bytes(batch), bytes(batch)],
    lambda rng, batch: [],
    lambda rng, batch: [bytes(len(batch))],
)


# -- a log with some of that


class Leased:
    """A leased log on a disk in memory."""

    def __init__(self, rng: random.Random, log: Sequence[AnyBatch], torn: bool, **known: object) -> None:
        self.disk = MemoryDisk(ManualClock().now_ms)
        self.disk.make_directory("/lease/links")
        self.whole: list[memoryview] = []
        rows, number = [], 0
        hit = {rng.randrange(len(log)) for _ in range(rng.choice([1, 1, 2, 3]))} if torn else set()
        for segment in cut(rng, list(log)):  # type: ignore[arg-type]  # it looks at no batch
            written = []
            for batch in segment:
                data = batch.encode()
                tear = rng.choice(OF_V2 + OF_ANY if data[16] == 2 else OF_ANY)
                written += tear(rng, bytearray(data)) if number in hit else [data]
                number += 1
            data = b"".join(written)
            if torn and rng.random() < 0.03:
                data = data[: rng.randrange(len(data) + 1)]
            size = len(data) + (rng.randrange(1, 100) if torn and rng.random() < 0.02 else 0)
            base, last = segment[0].base, segment[-1].last
            write_whole(self.disk, f"/lease/links/{base:020d}.log", data)
            self.whole.append(memoryview(data))
            row = {"base_offset": base, "last_offset": last, "size": size, "max_timestamp": -1}
            rows.append({**row, "mtime_ms": rng.choice([0, 10**6, 10**7]), "files": {"log": len(data), "index": 0}})
        bounds = [b.base for b in log] + [log[-1].last + 1]
        end = rng.choice([*[max(bounds)] * 3, *bounds])
        self.lease: Json = {
            "topic": "t",
            "partition": 0,
            "leader_epoch": 3,
            "now_ms": model.START_MS + 10**7,
            "clean_offset": min(end, rng.choice([bounds[0], *bounds])),
            "end_offset": end,
            "segments": rows,
            "links_dir": "/lease/links",
            "parts_dir": "/lease/parts",
            "config": {
                "segment.bytes": rng.choice([300, 10**6]),
                "segment.index.bytes": 10**7,
                "delete.retention.ms": rng.choice([1000, 0, LONG_MAX]),
            },
            **known,
        }

    def cleaned(self, engine: Engine, keys_max: int) -> Outcome | None:
        return self._made(lambda: cleaning.clean(self.lease, keys_max, self.disk, cleaning.unthrottled, engine))

    def applied(self, engine: Engine, decision: Decision) -> Outcome | None:
        return self._made(lambda: cleaning.apply(self.lease, decision, self.disk, cleaning.unthrottled, engine))

    def _made(self, work: Callable[[], Json]) -> Outcome | None:
        self.disk.remove_tree("/lease/parts")
        self.disk.make_directory("/lease/parts")
        try:
            made = work()
        except CorruptData:
            return None
        parts = [read_whole(self.disk, f"/lease/parts/{group['segments'][0]:020d}.part") for group in made["groups"]]
        return {**made, "bytes_read": 0}, parts


def any_log(rng: random.Random) -> tuple[list[AnyBatch], list[AbortedTransaction], dict[int, ActiveProducer]]:
    if rng.random() < 0.25:
        return random_old_log(rng, rng.randrange(1, 30)), [], {}
    log = model.random_log(rng, rng.randrange(2, 40))
    inside: list[AnyBatch] = [b for b in log.batches if log.open_from is None or b.base < log.open_from]
    return inside, [AbortedTransaction(*row) for row in log.aborted_index()], producers_of(rng, log)


@pytest.mark.parametrize("block", range(6))
def test_both_engines_refuse_or_write_the_same(block: int) -> None:
    agreed = refused = 0
    for seed in range(block * 250, block * 250 + 250):
        rng = random.Random(seed)
        log, aborted, producers = any_log(rng)
        if not log:
            continue
        known = {
            "aborted_transactions": [a._asdict() for a in aborted],
            "producers": [
                {"producer_id": i, "last_offset": p.last_offset, "producer_epoch": p.producer_epoch}
                for i, p in producers.items()
            ],
        }
        leased = Leased(rng, log, True, **known)
        keys_max = rng.choice([1, 3, 1000])
        outcomes = [leased.cleaned(engine, keys_max) for engine in ENGINES]
        sound = Leased(random.Random(seed), log, False, **known)
        end = log[-1].last + 1
        decision = survey_segments(
            sound.whole, Survey("t", 0, 3, log[0].base, end, model.START_MS, 1000, end, aborted, producers)
        )
        outcomes += [leased.applied(engine, decision) for engine in ENGINES]
        for plain, compiled in (outcomes[:2], outcomes[2:]):
            assert compiled is None or compiled == plain, seed
            agreed += compiled is not None
            refused += compiled is None
    assert agreed > 150
    assert refused > 100
