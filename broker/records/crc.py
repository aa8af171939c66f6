"""The checksums of records: CRC-32C for v2 batches, CRC-32 (zlib's) for messages of the old formats."""

import zlib

from logyard.broker.submodule_import import without_package_init

# The package's `__init__` only asks for its own version, with 13 modules: 0.8 MB.
with without_package_init("crc32c"):
    from crc32c._crc32c import crc32c as _castagnoli


def crc32c(data: memoryview | bytes | bytearray) -> int:
    """CRC-32C (Castagnoli) as an unsigned 32-bit number; about 31 µs per MB."""
    return int(_castagnoli(data))


def crc32(data: memoryview | bytes | bytearray, before: int = 0) -> int:
    """CRC-32 (IEEE) as an unsigned 32-bit number; `before`: that of the bytes in front of these."""
    return zlib.crc32(data, before)
