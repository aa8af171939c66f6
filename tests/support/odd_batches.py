"""Produce requests as no sound client sends them, from a seed: every field off, in every format and codec.

Built with struct and aiokafka's codecs, nothing of ours; the same seed gives the same requests.
"""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import crc32c

from tests.support.batches import compressed

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LONG_VARINT = "a varint too long"
LONG_MAX, INT_MAX = 2**63 - 1, 2**31 - 1
HEADER_SIZE = 61

Header = dict[str, int]
Change = Callable[[random.Random, "Parts"], None]


@dataclass(frozen=True)
class Odd:
    """One partition's records in a Produce request of that version, and what is odd about them."""

    number: int
    topic: str
    version: int
    records: bytes
    what: str
    faults: int = 1


@dataclass
class Parts:
    """A v2 batch before it is put together; `resealed` False keeps a wrong checksum."""

    header: Header
    records: list[dict[str, Any]]
    codec: int
    resealed: bool = True
    cut: int = 0
    tail: bytes = b""
    spoil: Callable[[bytes], bytes] = field(default=lambda body: body)
    what: list[str] = field(default_factory=list)


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    rest &= 2**64 - 1
    out = bytearray()
    while rest > 127:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def _record(record: dict[str, Any]) -> bytes:
    body: bytes = struct.pack("B", record["attributes"]) + varint(record["time"]) + varint(record["delta"])
    body += record.get("raw_key", _sized(record["key"])) + _sized(record["value"])
    body += varint(record.get("header_count", len(record["headers"])))
    for key, value in record["headers"]:
        body += (_sized(key) if key is not None else varint(-1)) + _sized(value)
    body += record.get("more", b"")
    length: bytes = record.get("length", varint(len(body) + record.get("longer", 0)))
    return length + body


def assembled(parts: Parts) -> bytes:
    """The batch's bytes, lengths and checksum right unless the parts say otherwise."""
    body = b"".join(_record(record) for record in parts.records)
    if parts.codec in (GZIP, SNAPPY, LZ4, ZSTD):
        body = compressed(parts.codec, body)
    body = parts.spoil(body)
    h = parts.header
    after_crc = struct.pack(
        ">hiqqqhii",
        h["attributes"],
        h["last_delta"],
        h["base_time"],
        h["max_time"],
        h["producer"],
        h["epoch"],
        h["sequence"],
        h["count"],
    )
    after_crc += body
    crc = crc32c.crc32c(after_crc) if parts.resealed else h.get("crc", 1)
    length = 9 + len(after_crc) + h.get("longer", 0)
    whole = struct.pack(">qiibI", h["base"], length, h["leader_epoch"], h["magic"], crc) + after_crc
    return whole[: len(whole) - parts.cut] + parts.tail


def sound(rng: random.Random, now_ms: int, codec: int | None = None) -> Parts:
    """A batch that every broker takes."""
    count = rng.choice((1, 1, 2, 3, 5, 20))
    base_time = now_ms - rng.randrange(1000)
    records: list[dict[str, Any]] = [
        {
            "attributes": 0,
            "time": rng.choice((0, number, 7 * number, -number)),
            "delta": number,
            "key": rng.choice((b"", b"k%d" % number, b"key")),
            "value": rng.choice((None, b"", b"value %d" % number, b"v" * rng.randrange(200))),
            "headers": rng.choice(([], [], [(b"h", b"x")], [(b"h", None), (b"", b"")])),
        }
        for number in range(count)
    ]
    codec = rng.randrange(5) if codec is None else codec
    header = {
        "base": 0,
        "leader_epoch": rng.choice((-1, 0, 5)),
        "magic": 2,
        "attributes": codec,
        "last_delta": count - 1,
        "base_time": base_time,
        "max_time": max(base_time + r["time"] for r in records),
        "producer": -1,
        "epoch": -1,
        "sequence": -1,
        "count": count,
    }
    return Parts(header, records, codec)


# What is odd about the header.

_FIELDS: dict[str, tuple[int, ...]] = {
    "base": (1, -1, 7, LONG_MAX),
    "leader_epoch": (-7, INT_MAX),
    "magic": (0, 1, 3, -1),
    "last_delta": (-1, 0, 1, 4, 100, INT_MAX, -INT_MAX),
    "base_time": (-1, 0, -1000, LONG_MAX, -LONG_MAX),
    "max_time": (-1, 0, 1, -1000, LONG_MAX, -LONG_MAX),
    "producer": (-2, 0, 1, LONG_MAX),
    "epoch": (-2, 0, 1, 32767),
    "sequence": (-2, 0, 1, INT_MAX),
    "count": (-1, 0, 1, 2, 100, INT_MAX, -INT_MAX),
    "longer": (-1, 1, -40, 100, INT_MAX // 2, -INT_MAX),
}
_ATTRIBUTES = (0x08, 0x10, 0x20, 0x40, 0x80, 0x100, 0x4000, -0x8000)


def _field(rng: random.Random, parts: Parts) -> None:
    name = rng.choice(list(_FIELDS))
    parts.header[name] = rng.choice(_FIELDS[name])
    parts.what.append(f"{name} {parts.header[name]}")


def _attribute(rng: random.Random, parts: Parts) -> None:
    bit = rng.choice(_ATTRIBUTES)
    parts.header["attributes"] |= bit
    parts.what.append(f"attribute {bit:#x}")


def _other_codec(rng: random.Random, parts: Parts) -> None:
    codec = rng.randrange(8)
    parts.header["attributes"] = parts.header["attributes"] & ~7 | codec
    parts.what.append(f"codec {codec} over {parts.codec}")


def _producer(rng: random.Random, parts: Parts) -> None:
    parts.header |= {
        "producer": rng.choice((-2, -1, 4, 5)),
        "epoch": rng.choice((-1, 0, 1)),
        "sequence": rng.choice((-1, 0, 1, 2, INT_MAX)),
    }
    parts.what.append(f"producer {[parts.header[name] for name in ('producer', 'epoch', 'sequence')]}")


def _crc(rng: random.Random, parts: Parts) -> None:
    parts.resealed = False
    parts.what.append("checksum")


def _nothing(rng: random.Random, parts: Parts) -> None:
    parts.what.append("nothing")


# What is odd about the records.


def _times(rng: random.Random, parts: Parts) -> None:
    far = rng.choice((-(10**9), 10**9, -(10**13), 10**13, -parts.header["base_time"] - 1, 2**63 - 1, -(2**62)))
    rng.choice(parts.records)["time"] = far
    parts.what.append(f"record's time {far}")


def _max_time_too_small(rng: random.Random, parts: Parts) -> None:
    parts.header["max_time"] -= rng.choice((1, 500, 10**6))
    parts.what.append("max timestamp too small")


def _deltas(rng: random.Random, parts: Parts) -> None:
    record = rng.choice(parts.records)
    record["delta"] = rng.choice((-1, 0, 1, 3, 1000, INT_MAX, -INT_MAX - 1))
    parts.what.append(f"offset delta {record['delta']}")


def _reversed_deltas(rng: random.Random, parts: Parts) -> None:
    for number, record in enumerate(reversed(parts.records)):
        record["delta"] = number
    parts.what.append("offset deltas reversed")


def _no_key(rng: random.Random, parts: Parts) -> None:
    for record in rng.sample(parts.records, rng.randint(1, len(parts.records))):
        record["key"] = None
    parts.what.append("no key")


def _record_attributes(rng: random.Random, parts: Parts) -> None:
    rng.choice(parts.records)["attributes"] = rng.choice((1, 8, 0x80, 0xFF))
    parts.what.append("record's attributes")


def _header_key(rng: random.Random, parts: Parts) -> None:
    rng.choice(parts.records)["headers"] = [(rng.choice((b"\xff\xfe", b"a\xc3", None)), b"x")]
    parts.what.append("header key")


def _header_count(rng: random.Random, parts: Parts) -> None:
    record = rng.choice(parts.records)
    record["header_count"] = rng.choice((-1, 1, 2, 100, INT_MAX))
    parts.what.append(f"header count {record['header_count']}")


def _record_length(rng: random.Random, parts: Parts) -> None:
    record = rng.choice(parts.records)
    record["longer"] = rng.choice((-1, 1, 5, 1000, -1000))
    parts.what.append(f"record longer by {record['longer']}")


def _bad_varint(rng: random.Random, parts: Parts) -> None:
    record = rng.choice(parts.records)
    record[rng.choice(("length", "raw_key"))] = b"\xff" * rng.choice((5, 9, 12)) + b"\x01"
    parts.what.append(LONG_VARINT)


def _more_in_record(rng: random.Random, parts: Parts) -> None:
    rng.choice(parts.records)["more"] = b"junk"
    parts.what.append("junk in a record")


def _fewer_records(rng: random.Random, parts: Parts) -> None:
    parts.records.pop()
    parts.what.append("a record missing")


def _cut(rng: random.Random, parts: Parts) -> None:
    parts.cut = rng.choice((1, 2, 10, 60))
    parts.what.append(f"cut by {parts.cut}")


def _tail(rng: random.Random, parts: Parts) -> None:
    parts.tail = rng.choice((b"\0", b"junk", b"\0" * 17, b"\xff" * 30))
    parts.what.append("junk behind")


def _spoilt(rng: random.Random, parts: Parts) -> None:
    how = rng.randrange(4)
    place = rng.random()

    def spoil(body: bytes) -> bytes:
        at = int(place * len(body))
        return [body[:at], body + b"junk", body[:at] + b"\xff" + body[at + 1 :], b""][how]

    parts.spoil = spoil
    parts.what.append(f"payload spoilt {['cut', 'junk behind', 'a byte', 'empty'][how]}")


CHANGES: tuple[tuple[Change, int], ...] = (
    (_nothing, 6),
    (_field, 14),
    (_attribute, 6),
    (_other_codec, 4),
    (_producer, 8),
    (_crc, 2),
    (_times, 6),
    (_max_time_too_small, 6),
    (_deltas, 5),
    (_reversed_deltas, 2),
    (_no_key, 6),
    (_record_attributes, 3),
    (_header_key, 3),
    (_header_count, 3),
    (_record_length, 4),
    (_bad_varint, 2),
    (_more_in_record, 2),
    (_fewer_records, 3),
    (_cut, 3),
    (_tail, 2),
    (_spoilt, 5),
)


UNREADABLE = "unreadable"
"""The topic of what no consumer can read though one of the two takes it: wrong lengths, numbers of too many bytes."""


def odd_v2(rng: random.Random, now_ms: int) -> tuple[bytes, str, bool]:
    parts = sound(rng, now_ms)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choices([c for c, _ in CHANGES], [weight for _, weight in CHANGES])[0]
        if parts.records:
            change(rng, parts)
    lengths_right = all("longer" not in record for record in parts.records)
    readable = LONG_VARINT not in parts.what and (not parts.codec or lengths_right)
    return assembled(parts), f"v2 codec {parts.codec}: {', '.join(parts.what)}", readable


# The old formats.


def message(magic: int, offset: int, attributes: int, time: int, key: bytes | None, value: bytes | None) -> bytes:
    """One message of magic 0 or 1 with its offset and length."""
    after_crc = struct.pack(">bb", magic, attributes)
    if magic:
        after_crc += struct.pack(">q", time)
    for part in (key, value):
        after_crc += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    body = struct.pack(">I", zlib.crc32(after_crc)) + after_crc
    return struct.pack(">qi", offset, len(body)) + body


def odd_legacy(rng: random.Random, now_ms: int) -> tuple[bytes, str]:
    """A message set of magic 0 or 1, plain or in a wrapper, with something odd about it."""
    magic, codec = rng.choice((0, 1)), rng.choice((NONE, NONE, GZIP, SNAPPY, LZ4))
    count = rng.choice((1, 2, 5))
    odd = rng.choice(
        ("nothing", "time", "key", "offsets", "crc", "append time", "magic", "cut", "wrapper key", "nested", "bits",
         "two wrappers", "no value", "spoilt", "wrapper time", "empty", "mixed", "zstd")
    )  # fmt: skip
    times = [now_ms + number for number in range(count)]
    if odd == "time":
        times[-1] = rng.choice((-1, -5, 0, now_ms + 10**9, now_ms - 10**9))
    offsets = [rng.randrange(9) for _ in times] if odd == "offsets" else list(range(count))
    inner_magic = 1 - magic if odd == "magic" else magic
    inner = []
    for number, (offset, time) in enumerate(zip(offsets, times, strict=True)):
        attributes = {"append time": 8, "bits": 0x40, "nested": GZIP}.get(odd, 0)
        if odd in ("append time", "nested") and codec and rng.random() < 0.5:
            attributes = 0
        key = None if odd == "key" else b"k%d" % number
        value = compressed(GZIP, message(magic, 0, 0, time, b"k", b"v")) if odd == "nested" else b"v%d" % number
        made = message(inner_magic, offset, attributes, time, key, value)
        inner.append(made[:-1] + b"\xff" if odd == "crc" and number == count - 1 else made)
    if odd == "mixed":
        inner.append(message(1 - magic, count, 0, now_ms, b"k", b"v"))
    body = b"" if odd == "empty" else b"".join(inner)
    if codec or odd == "zstd":
        codec = ZSTD if odd == "zstd" else codec
        packed: bytes | None = compressed(codec, body)
        if odd == "spoilt" and packed is not None:
            packed = packed[: len(packed) // 2]
        packed = None if odd == "no value" else packed
        time = now_ms - 5 if odd == "wrapper time" else max(times)
        attributes = codec | (8 if odd == "append time" else 0)
        body = message(magic, offsets[-1], attributes, time, b"k" if odd == "wrapper key" else None, packed)
        body *= 2 if odd == "two wrappers" else 1
    if odd == "cut":
        body = body[: -rng.choice((1, 3, 20))]
    return body, f"v{magic} codec {codec}: {odd}"


def requests(seed: int, count: int, topics: dict[str, dict[str, str]], now_ms: int) -> Iterator[Odd]:
    """`count` requests from a seed, over topics of those names."""
    rng = random.Random(seed)
    names = list(topics)
    for number in range(count):
        topic = rng.choice(names)
        readable = True
        if rng.random() < 0.2:
            records, what = odd_legacy(rng, now_ms)
            version = rng.choice((0, 1, 2, 2, 2, 3, 9))
        else:
            records, what, readable = odd_v2(rng, now_ms)
            version = rng.choice((3, 5, 6, 7, 8, 8, 9, 9, 9, 11, 2))
            if rng.random() < 0.04:
                more, also, _ = odd_v2(rng, now_ms)
                records, what = records + more, f"two batches: {what}, {also}"
        topic = topic if readable else UNREADABLE
        yield Odd(number, topic, version, records, f"Produce v{version}, {topic}: {what}", 1 + what.count(","))
