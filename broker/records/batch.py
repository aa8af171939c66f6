"""Record batches: the functions of this package for headers, checks, stamps, records and building, under one name."""

from logyard.broker.records.build import build, build_control
from logyard.broker.records.decode import (
    ABORT,
    COMMIT,
    ControlMarker,
    Record,
    control_marker,
    control_type,
    iter_records,
    records,
)
from logyard.broker.records.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    iter_headers,
    parse_header,
)
from logyard.broker.records.header_validation import (
    Bounds,
    check_produce_version,
    crc_matches,
    stamp,
    stamp_log_append_time,
    validate_client_batch,
    verify_crc,
)

__all__ = [
    "ABORT",
    "COMMIT",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Bounds",
    "ControlMarker",
    "Record",
    "TimestampType",
    "build",
    "build_control",
    "check_produce_version",
    "control_marker",
    "control_type",
    "crc_matches",
    "iter_headers",
    "iter_records",
    "parse_header",
    "records",
    "stamp",
    "stamp_log_append_time",
    "validate_client_batch",
    "verify_crc",
]
