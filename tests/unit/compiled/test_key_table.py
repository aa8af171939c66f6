import random

import numpy as np

from logyard.broker.compiled import chunks
from logyard.broker.compiled.key_table import KeyTable
from logyard.broker.compiled.siphash import hash_key
from logyard.spark_jobs.segments.digests import batch_hashes, key_hashes, record_hashes
from tests.support.batches import Rec, batch
from tests.support.opened import open_trusted
from tests.unit.spark_jobs.segments.test_chunks import chunk_of


def test_hash_is_siphash_1_3_with_128_bits() -> None:
    """Against a plain implementation of the algorithm over Python's own integers."""
    rng = random.Random(5)
    for size in [*range(18), 63, 64, 200, 255, 256]:
        data = rng.randbytes(size)
        seeds = [rng.getrandbits(64) for _ in range(2)]
        raw = np.frombuffer(data, np.uint8) if data else np.zeros(1, np.uint8)
        assert tuple(int(h) for h in hash_key(raw, 0, size, *map(np.uint64, seeds))) == siphash13(data, *seeds)


def siphash13(data: bytes, k0: int, k1: int) -> tuple[int, int]:
    mask = 2**64 - 1
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotl(x: int, b: int) -> int:
        return ((x << b) | (x >> (64 - b))) & mask

    def step() -> None:
        v[0] = (v[0] + v[1]) & mask
        v[1] = rotl(v[1], 13) ^ v[0]
        v[0] = rotl(v[0], 32)
        v[2] = (v[2] + v[3]) & mask
        v[3] = rotl(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & mask
        v[3] = rotl(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & mask
        v[1] = rotl(v[1], 17) ^ v[2]
        v[2] = rotl(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        step()
        v[0] ^= word
    v[2] ^= 0xEE
    for _ in range(3):
        step()
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for _ in range(3):
        step()
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


def test_table_grows_and_keeps_the_last_offset_of_each_key() -> None:
    rng = random.Random(6)
    expected: dict[bytes, int] = {}
    table = KeyTable()
    offset = 0
    for _ in range(40):
        records = []
        for _ in range(500):
            key = b"%d" % rng.randrange(15_000)
            expected[key] = offset
            records.append(Rec(offset, key, None if offset % 50 == 0 else b""))
            offset += 1
        chunk = open_trusted(chunk_of(batch(records).encode()), "m")
        tombstones, damaged, _ = table.feed(chunk.raw, chunk.payloads, chunk.headers, np.ones(1, bool))
        assert damaged == -1
        assert tombstones[:, 0].tolist() == [r.offset for r in records if r.value is None]
    assert table.drain().tolist() == sorted(expected.values())
    assert table.count == len(expected) > 4096


def test_digests_do_not_depend_on_batches_but_on_every_part_of_a_record() -> None:
    def digests(records: list[Rec], **fields: int) -> tuple[list[int], int]:
        chunk = open_trusted(chunk_of(batch(records, **fields).encode()), "m")
        rows = chunks.walk(chunk)
        return record_hashes(chunk.raw, rows).tolist(), int(batch_hashes(chunk.raw, rows, 1)[0])

    one, two = Rec(7, b"k", b"v", 50, (("h", b"1"),)), Rec(9, b"l", None, 40)
    (both, total), (first, _), (second, _) = (
        digests([one, two]),
        digests([one], codec=3),
        digests([two], base_timestamp=3),
    )
    assert both == [*first, *second]
    assert np.int64(total) == np.array(both, np.int64).sum()
    changed = [
        Rec(8, b"k", b"v", 50, (("h", b"1"),)),
        Rec(7, b"K", b"v", 50, (("h", b"1"),)),
        Rec(7, None, b"v", 50, (("h", b"1"),)),
        Rec(7, b"", b"v", 50, (("h", b"1"),)),
        Rec(7, b"k", b"", 50, (("h", b"1"),)),
        Rec(7, b"k", None, 50, (("h", b"1"),)),
        Rec(7, b"k", b"v", 51, (("h", b"1"),)),
        Rec(7, b"k", b"v", 50, (("h", None),)),
        Rec(7, b"k", b"v", 50),
    ]
    assert len({digests([r])[0][0] for r in [one, *changed]}) == len(changed) + 1


def test_key_digests_are_zero_only_without_a_key() -> None:
    chunk = open_trusted(chunk_of(batch([Rec(0, b"a", b""), Rec(1, b"", b""), Rec(2, None, b"")]).encode()), "m")
    a, empty, none = key_hashes(chunk.raw, chunks.walk(chunk)).tolist()
    assert none == 0
    assert 0 not in (a, empty)
    assert a != empty


def test_a_digest_differs_by_every_byte_of_a_record_of_any_length() -> None:
    rng = random.Random(9)
    for size in [*range(70), 255, 1000]:
        value = bytearray(rng.randbytes(size))
        seen = set()
        for at in range(-1, size):
            changed = bytearray(value)
            if at >= 0:
                changed[at] ^= 1 << rng.randrange(8)
            chunk = open_trusted(chunk_of(batch([Rec(0, b"k", bytes(changed))]).encode()), "m")
            seen.add(int(record_hashes(chunk.raw, chunks.walk(chunk))[0]))
        assert len(seen) == size + 1, f"{size} bytes"
