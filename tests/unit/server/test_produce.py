"""Produce, as far as the handler itself decides."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.records import batch
from logyard.broker.server.handlers import produce
from logyard.broker.server.request import Request
from logyard.broker.server.rights import EverythingAllowed

SERVICES = cast(Any, SimpleNamespace(quotas=SimpleNamespace(produce=None, request=None), rights=EverythingAllowed()))


@pytest.mark.parametrize("version", [3, 7, 9])
def test_transactional_records_without_a_transactional_id_are_refused_first_of_all(version: int) -> None:
    """As Kafka does: for every partition of the request, whatever else is wrong with it."""
    record = batch.Record(0, 1, b"k", b"v")
    batches = [bytes(batch.build([record], transactional=flag, producer_id=5)) for flag in (False, True)]
    parts = [{"index": number, "records": data} for number, data in enumerate(batches)]
    fields = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "t", "partition_data": parts}],
    }
    frame = memoryview(bytearray(codec.encode_request(0, version, 1, "c", fields)))[4:]
    key, version, correlation_id, client_id, body = parse_request_header(frame)
    session = cast(Any, SimpleNamespace(is_appending=False))
    answer = produce.handle(SERVICES, Request(key, version, correlation_id, client_id, body, session))
    told = codec.decode_response(0, version, memoryview(cast(bytes, answer))[4:])[1]
    codes = [part.error_code for part in told.responses[0].partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
