"""Compresses records piece by piece, up to a limit: only the compressed bytes are kept in memory."""

import zstandard

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.records import compression, gzip_packing
from logyard.broker.records.compression import Buffer

# zstd does not know the size, so its window is that of the level, as in a producer with this level.
_ZSTD_LEVEL = 3


class Packer:
    """Compresses pieces into one stream; `codec` and `level` are as for `compression.compress`.

    Its methods raise ApiError: MESSAGE_TOO_LARGE (the stream has more than `size_max` bytes).
    """

    def __init__(self, codec: int, level: int | None, size_max: int) -> None:
        compression.name(codec)
        self._codec = codec
        self._size_max = size_max
        self._made = bytearray()
        self._rest = bytearray()  # for snappy and lz4: less than a block
        self._packer = _packer(codec, level)
        self._block_bytes = {2: compression.XERIAL_BLOCK, 3: compression.LZ4_BLOCK}.get(codec, 0)
        if codec in (compression.SNAPPY, compression.LZ4):
            self._made += compression.XERIAL_HEAD if codec == compression.SNAPPY else compression.LZ4_HEAD

    def add(self, piece: Buffer) -> None:
        """Compress the next piece."""
        if self._packer is not None:
            self._made += self._packer.compress(piece)
        elif not self._block_bytes:
            self._made += piece
        else:
            self._rest += piece
            whole = len(self._rest) - len(self._rest) % self._block_bytes
            for start in range(0, whole, self._block_bytes):
                self._made += self._block(memoryview(self._rest)[start : start + self._block_bytes])
            del self._rest[:whole]
        self._check()

    def finish(self) -> bytearray:
        """Return the whole stream."""
        if self._packer is not None:
            self._made += self._packer.flush()
        elif self._rest:
            self._made += self._block(memoryview(bytes(self._rest)))
        if self._codec == compression.LZ4:
            self._made += compression.LZ4_END
        self._check()
        return self._made

    def _block(self, plain: memoryview) -> bytes:
        made = compression.xerial_block(plain) if self._codec == compression.SNAPPY else compression.lz4_block(plain)
        plain.release()
        return made

    def _check(self) -> None:
        if len(self._made) > self._size_max:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"compressed with {compression.NAMES[self._codec]} it has more than {self._size_max} bytes",
            )


def _packer(codec: int, level: int | None) -> "gzip_packing.GzipPacker | zstandard.ZstdCompressionObj | None":
    if codec == compression.GZIP:
        return gzip_packing.packer(level)
    if codec == compression.ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level).compressobj()
    return None
