"""The records of an answer: read, or named where they are in their files; an error concerns only its partition."""

from typing import cast

from logyard.broker.replication.events import FetchedPartition, Records
from logyard.broker.replication.log_errors import code_of
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import Slice

Found = tuple[FetchedPartition, Slice, Partition, int]
"""A partition's answer, the records for it, and whose they are: the leader epoch of the reading."""


def fill(slices: list[Found], *, in_files: bool) -> list[Found]:
    """Fill in the records that are in memory, read or with `in_files` as a part of their file; returns the others."""
    cold = []
    for each in slices:
        result, found, _, _ = each
        try:
            # What encodes the answer asks a part for its length only, as it does for all large records.
            records = cast(Records | None, found.in_file()) if in_files else None
            if records is None:
                records = found.load_nowait()
            if records is None:
                cold.append(each)
            else:
                result.records = records
                if result.aborted is not None:
                    name_aborted(result, found)
        except Exception as error:
            fail(result, error)
    return cold


def name_aborted(result: FetchedPartition, found: Slice) -> None:
    """For a reader of committed records: which of the answered ones were aborted."""
    if result.aborted is not None and len(result.records):
        aborted = found.aborted()
        if aborted is None:
            result.records = b""  # what tells it is gone
        else:
            result.aborted = [(each.producer_id, each.first_offset) for each in aborted]


def fail(result: FetchedPartition, error: Exception) -> None:
    """Answer the error alone."""
    result.error = code_of(error, result.tp)
    result.records = b""
    result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
