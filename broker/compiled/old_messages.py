"""Messages of formats v0 and v1 in a chunk, in the form that the compiled loops take: headers and records as in v2
batches.

Each message is decompressed by itself, in plain Python: logs with such messages are read a hundred times slower than
others. Logs without them are not slower.
"""

import numpy as np

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.kernels import Array
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.records.build import append_record
from logyard.broker.records.header import parse_header
from logyard.broker.records.header_validation import crc_matches
from logyard.broker.records.legacy import ordered

# With this many unpacked bytes a chunk ends: each message may become 256 MiB.
UNPACKED_BYTES = 64 << 20

Payloads = dict[int, bytes]
Faults = dict[int, str]


def opened_messages(data: Array, headers: Array) -> tuple[Payloads, Faults, int]:
    """Fill in the rows of old messages (kernels.read_headers left them empty).

    Returns by the position of each: its records as a v2 batch has them, or why it cannot be trusted; a damaged one has
    no records, and keeps its own offset. The third is how many rows were gone through: the rest is left empty where the
    messages before it already fill much memory.
    """
    view = memoryview(data)
    payloads: Payloads = {}
    faults: Faults = {}
    total = 0
    for index in np.flatnonzero(headers[:, k.MAGIC] != 2).tolist():
        row = headers[index]
        at, length = int(row[k.POSITION]), int(row[k.LENGTH])
        try:
            filled, payload = _opened(view[at : at + length])
        except LogyardError as error:
            faults[at] = str(error)
            filled, payload = _empty(row), b""
        payloads[at] = payload
        headers[index] = [at, filled[0], length, *filled[1:]]
        total += len(payload)
        if total >= UNPACKED_BYTES:
            return payloads, faults, index + 1
    return payloads, faults, len(headers)


def _opened(message: memoryview) -> tuple[list[int], bytes]:
    """A message's row from BASE_OFFSET on (without LENGTH), and its records."""
    header = parse_header(message)
    if not crc_matches(message, 0, header):
        raise CorruptData("its checksum (CRC-32) is wrong")
    body, count, first, time = bytearray(), 0, -1, -1
    for record in ordered(header, message):
        if not count:
            first, time = record.offset, record.timestamp
        append_record(body, record, first, time)
        count += 1
    row = [first, -1, header.magic, header.crc, header.attributes, header.last_offset - first]
    return [*row, time, header.max_timestamp, -1, -1, -1, count], bytes(body)


def _empty(row: Array) -> list[int]:
    return [int(row[k.BASE_OFFSET]), -1, int(row[k.MAGIC]), 0, 0, 0, -1, -1, -1, -1, -1, 0]
