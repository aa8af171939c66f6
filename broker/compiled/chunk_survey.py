"""Pass 1 of a compaction over chunks: which batches the survey has to see one by one, and which keys count.

The rules are those of broker/compaction/decision.py.
"""

from array import array

import numpy as np

from logyard.broker.compaction.batch_facts import batch_facts
from logyard.broker.compaction.decision import OLD_FORMAT, Survey
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import Chunk
from logyard.broker.compiled.kernels import Array
from logyard.broker.records.header import parse_header

_CONTROL_OR_TRANSACTIONAL = 0x30


def flags_of(headers: Array) -> Array:
    """Return the attributes that `Survey.tombstone` takes, of one header row or of each."""
    return headers[..., k.ATTRIBUTES] | np.where(headers[..., k.MAGIC] < 2, OLD_FORMAT, 0)


def wanted_batches(chunk: Chunk, survey: Survey) -> Array:
    """Return a mask of the batches whose keys go to the key table; control and transactional batches, and the last ones
    of producers, are passed to the survey one by one."""
    headers = chunk.headers
    wanted = headers[:, k.BASE_OFFSET] < survey.range_end
    last_offsets = headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA]
    special = (headers[:, k.ATTRIBUTES] & _CONTROL_OR_TRANSACTIONAL) != 0
    if len(survey.producers_last):
        known = np.frombuffer(survey.producers_last, np.int64)
        at = np.minimum(np.searchsorted(known, last_offsets), len(known) - 1)
        special |= (known[at] == last_offsets) & (headers[:, k.PRODUCER_ID] >= 0)
    for index in np.flatnonzero(special).tolist():
        batch = chunk.batch(index)
        wanted[index] = survey.batch(batch_facts(parse_header(batch), batch))
    return wanted


def offset_set(values: Array) -> OffsetSet:
    """Return ascending int64 offsets, in which that of an odd batch may be twice, as the set that decisions carry."""
    flat = array("q")
    distinct = values[np.append(values[1:] != values[:-1], True)] if len(values) else values
    flat.frombytes(np.ascontiguousarray(distinct, np.int64).tobytes())
    return OffsetSet(flat, is_sorted=True)
