"""A chunk opened whole, as the jobs open it in parts."""

from logyard.broker.compiled.chunks import Chunk, CorruptBatch, check_crcs, open_checked


def open_trusted(chunk: Chunk, where: str = "m") -> Chunk:
    """Check and decompress a chunk; raises CorruptBatch at the first damage."""
    for damage in check_crcs(chunk):
        raise CorruptBatch(damage, where)
    return open_checked(chunk, where)
