"""gzip by ISA-L and by Python's zlib: everybody reads it, whatever the level and however it was cut into pieces."""

import gzip
import random
import zlib

import pytest
from aiokafka import codec as theirs

from logyard.broker.records import compression, gzip_packing
from logyard.broker.records.compression_stream import Packer
from logyard.broker.records.decompression_stream import pieces

RANDOM = random.Random(11)
TEXT = b"".join(b'{"id":%d,"word":"%d"}' % (RANDOM.randrange(9**9), RANDOM.randrange(999)) for _ in range(4000))
FAR = b"".join(bytes([n % 7]) + RANDOM.randbytes(1000) for n in range(16)) * 40
SAMPLES = [b"", b"a", RANDOM.randbytes(300), TEXT, bytes(1_000_000), FAR]
LEVELS = [None, -1, *range(1, 10)]


@pytest.fixture(params=["ISA-L", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What packs: zlib as where ISA-L is not installed."""
    assert gzip_packing.isal_zlib is not None, "the broker's extra brings it"
    if request.param == "zlib":
        monkeypatch.setattr(gzip_packing, "isal_zlib", None)
    return str(request.param)


def packed_by_zlib(data: bytes, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, wbits=31)
    return packer.compress(data) + packer.flush()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_what_is_packed_is_read_by_others_and_by_us(level: int | None, data: bytes) -> None:
    packed = compression.compress(compression.GZIP, memoryview(data), level)
    assert gzip.decompress(packed) == data
    assert theirs.gzip_decode(packed) == data
    assert compression.decompress(compression.GZIP, packed) == data
    assert b"".join(map(bytes, pieces(compression.GZIP, memoryview(packed)))) == data


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("level", [None, 1, 2, 9])
def test_pieces_of_any_size_make_one_stream(level: int | None) -> None:
    chance = random.Random(5)
    for _ in range(60):
        data = b"".join(chance.choice([TEXT, FAR, bytes(500)])[: chance.randrange(40_000)] for _ in range(3))
        made, at = Packer(compression.GZIP, level, 1 << 20), 0
        while at < len(data):
            size = chance.choice([1, 7, 300, 5000, 262_144])
            made.add(memoryview(bytearray(data[at : at + size])))
            at += size
        assert gzip.decompress(bytes(made.finish())) == data


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("data", [TEXT, FAR], ids=["text", "far"])
def test_no_level_packs_much_worse_than_zlib(level: int | None, data: bytes) -> None:
    assert len(compression.compress(compression.GZIP, data, level)) < 1.1 * len(packed_by_zlib(data, level))


def test_levels_above_the_default_are_packed_by_zlib() -> None:
    for level in (7, 8, 9):
        assert compression.compress(compression.GZIP, TEXT, level) == packed_by_zlib(TEXT, level)
    assert compression.compress(compression.GZIP, TEXT) != packed_by_zlib(TEXT, None)
