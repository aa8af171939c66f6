"""Compiled loops of pass 2: the rules of broker/compaction/rewrite.py over a chunk of batches. A property test checks
that both write the same bytes."""

from typing import Any

import numpy as np

from logyard.broker.compiled.jit import kernel
from logyard.broker.compiled.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    END,
    FAULT_LEFTOVER,
    FAULT_NONE,
    FAULT_OFFSETS,
    HEADER_SIZE,
    LAST_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAX_TIMESTAMP,
    OFFSET,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COLUMNS,
    START,
    TIMESTAMP,
    Array,
    _put_be,
    _record,
    _varint,
)

VERBATIM, DROPPED, EMPTY, PLACEHOLDER, FILTER = 0, 1, 2, 3, 4
CODEC_MASK, LOG_APPEND_TIME, HORIZON = 0x07, 0x08, 0x40
# Columns of the plan matrix (n, PLAN_COLUMNS): the verdict, whether to stamp, the survivors' index range, and the
# output's position.
KIND, STAMP, FIRST, LAST, OUT_START, OUT_END, OUT_COUNT = 0, 1, 2, 3, 4, 5, 6
PLAN_COLUMNS = 7
# A record grows by at most this much when its timestamp delta changes: nine bytes of delta, one of length.
GROWTH_MAX = 11


@kernel
def _holds(values: Array, first: int, last: int) -> bool:
    at = np.searchsorted(values, first)
    return bool(at < values.shape[0] and values[at] <= last)


@kernel
def _without_records(count: int, last_offset: int, kept: Array, ends_group: bool) -> int:
    if _holds(kept, last_offset, last_offset):
        return VERBATIM if count == 0 else EMPTY
    return PLACEHOLDER if ends_group else DROPPED


@kernel
def judge_batches(
    headers: Array, survivors: Array, stamped: Array, kept: Array, start: int, end: int, ends_group: bool, plan: Array
) -> None:
    """Fill KIND, STAMP, FIRST and LAST of `plan`; FILTER means that the records must be looked at.

    The three offset arrays are ascending int64; [start, end) is the decision's range; `ends_group`: the last batch
    here ends its group.
    """
    count = headers.shape[0]
    for i in range(count):
        first = headers[i, BASE_OFFSET]
        last = first + headers[i, LAST_DELTA]
        is_end = ends_group and i == count - 1
        plan[i, STAMP] = 0
        if first < start or last >= end:
            plan[i, KIND] = VERBATIM
            continue
        plan[i, FIRST] = np.searchsorted(survivors, first)
        plan[i, LAST] = np.searchsorted(survivors, last + 1)
        kept_records = plan[i, LAST] - plan[i, FIRST]
        if headers[i, COUNT] == 0 or kept_records == 0:
            plan[i, KIND] = _without_records(headers[i, COUNT], last, kept, is_end)
            continue
        if not headers[i, ATTRIBUTES] & HORIZON and _holds(stamped, first, last):
            plan[i, STAMP] = 1
        dense = headers[i, COUNT] == headers[i, LAST_DELTA] + 1
        whole = dense and kept_records == headers[i, COUNT] and plan[i, STAMP] == 0
        plan[i, KIND] = VERBATIM if whole else FILTER


@kernel
def _put_header(
    out: Array,
    at: int,
    row: Array,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    size: int,
    bare: bool,
) -> None:
    _put_be(out, at, 8, row[BASE_OFFSET])
    _put_be(out, at + 8, 4, size - 12)
    _put_be(out, at + 12, 4, row[LEADER_EPOCH])
    out[at + 16] = 2
    _put_be(out, at + 17, 4, 0)
    _put_be(out, at + 21, 2, attributes)
    _put_be(out, at + 23, 4, row[LAST_DELTA])
    _put_be(out, at + 27, 8, base_timestamp)
    _put_be(out, at + 35, 8, max_timestamp)
    _put_be(out, at + 43, 8, -1 if bare else row[PRODUCER_ID])
    _put_be(out, at + 51, 2, -1 if bare else row[PRODUCER_EPOCH])
    _put_be(out, at + 53, 4, -1 if bare else row[BASE_SEQUENCE])
    _put_be(out, at + 57, 4, count)


@kernel
def _put_varint(out: Array, at: int, value: int) -> int:
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest > np.uint64(0x7F):
        out[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@kernel
def _varint_size(value: int) -> int:
    rest = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest > np.uint64(0x7F):
        rest >>= np.uint64(7)
        size += 1
    return size


@kernel
def _copy_record(raw: Array, row: Array, shift: int, out: Array, at: int) -> int:
    start, end = row[START], row[END]
    if shift == 0:
        out[at : at + end - start] = raw[start:end]
        return int(at + end - start)
    _size, inside = _varint(raw, start, end)
    _delta, rest = _varint(raw, inside + 1, end)
    delta = row[TIMESTAMP] + shift
    at = _put_varint(out, at, 1 + _varint_size(delta) + end - rest)
    out[at] = raw[inside]
    at = _put_varint(out, at + 1, delta)
    out[at : at + end - rest] = raw[rest:end]
    return int(at + end - rest)


@kernel
def _filter(
    raw: Array,
    payload: Array,
    header: Array,
    survivors: Array,
    plan: Array,
    shift: int,
    out: Array,
    at: int,
    row: Array,
) -> tuple[int, int, Any, Any]:
    """Copy the surviving records to out[at:]; return the end, their count, their largest timestamp, and a fault.

    Sums wrap at 64 bits, as elsewhere (broker/records/varint.py)."""
    place = payload[0]
    end = payload[1]
    s = plan[FIRST]
    before, last_offset = header[BASE_OFFSET] - 1, header[BASE_OFFSET] + header[LAST_DELTA]
    kept = 0
    latest = np.int64(-(2**63))
    for _ in range(header[COUNT]):
        fault = _record(raw, place, end, row)
        if fault != FAULT_NONE:
            return at, kept, latest, fault
        place = row[END]
        offset = header[BASE_OFFSET] + row[OFFSET]
        if not before < offset <= last_offset:
            return at, kept, latest, FAULT_OFFSETS
        before = offset
        while s < plan[LAST] and survivors[s] < offset:
            s += 1
        if s < plan[LAST] and survivors[s] == offset:
            at = _copy_record(raw, row, shift, out, at)
            kept += 1
            latest = max(latest, header[BASE_TIMESTAMP] + row[TIMESTAMP])
    return at, kept, latest, FAULT_NONE if place == end else FAULT_LEFTOVER


@kernel
def write_batches(
    data: Array,
    raw: Array,
    payloads: Array,
    headers: Array,
    survivors: Array,
    kept: Array,
    horizon: int,
    ends_group: bool,
    plan: Array,
    out: Array,
) -> tuple[int, int]:
    """Write the new form of each batch into `out` (CRC left 0, bodies not compressed) and its position into `plan`.

    FILTER is replaced by the verdict after reading the records. Returns the first damaged batch and its fault, or (-1,
    FAULT_NONE).
    """
    at = 0
    row = np.empty(RECORD_COLUMNS, np.int64)
    for i in range(headers.shape[0]):
        header = headers[i]
        latest = header[MAX_TIMESTAMP]
        plan[i, OUT_START] = at
        plan[i, OUT_COUNT] = 0
        if plan[i, KIND] == FILTER:
            stamp = plan[i, STAMP] == 1
            shift = header[BASE_TIMESTAMP] - horizon if stamp else 0
            end, count, newest, fault = _filter(
                raw, payloads[i], header, survivors, plan[i], shift, out, at + HEADER_SIZE, row
            )
            if fault == FAULT_OFFSETS:
                plan[i, KIND] = VERBATIM
            elif fault != FAULT_NONE:
                return i, fault
            elif count == 0:
                is_end = ends_group and i == headers.shape[0] - 1
                plan[i, KIND] = _without_records(header[COUNT], header[BASE_OFFSET] + header[LAST_DELTA], kept, is_end)
            elif count == header[COUNT] and not stamp:
                plan[i, KIND] = VERBATIM
            else:
                if not header[ATTRIBUTES] & LOG_APPEND_TIME:
                    latest = newest
                attributes = header[ATTRIBUTES] | (HORIZON if stamp else 0)
                base = horizon if stamp else header[BASE_TIMESTAMP]
                _put_header(out, at, header, attributes, base, latest, count, end - at, False)
                plan[i, OUT_COUNT] = count
                at = end
        kind = plan[i, KIND]
        if kind == VERBATIM:
            size = header[LENGTH]
            out[at : at + size] = data[header[POSITION] : header[POSITION] + size]
            plan[i, OUT_COUNT] = header[COUNT]
            at += size
        elif kind in (EMPTY, PLACEHOLDER):
            mask = ~(CODEC_MASK | HORIZON) if kind == EMPTY else LOG_APPEND_TIME
            _put_header(out, at, header, header[ATTRIBUTES] & mask, latest, latest, 0, HEADER_SIZE, kind == PLACEHOLDER)
            at += HEADER_SIZE
        plan[i, OUT_END] = at
    return -1, FAULT_NONE
