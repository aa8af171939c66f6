"""Answers with a null where the protocol has none: an error in one line, not one of Python's."""

import asyncio
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsResponse, DescribeLogDirsResponse
from kafka.protocol.metadata import MetadataResponse

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.broker.protocol import codec
from logyard.login.library.nulls import misplaced_null
from tests.support.scripted_broker import Answer, Asked, ScriptedBroker

API_VERSIONS, METADATA, DESCRIBE_GROUPS, DESCRIBE_LOG_DIRS = 18, 3, 15, 35
OFFERED = {API_VERSIONS: 3, METADATA: 9, DESCRIBE_LOG_DIRS: 1}
ROW = {"partition_index": 0, "partition_size": 1, "offset_lag": 0, "is_future_key": False}
DIRECTORY = {"error_code": 0, "log_dir": "/logs", "topics": [{"name": "t", "partitions": [ROW]}]}
NULL = b"\xff" * 4


def of_log_dirs(*damages: tuple[bytes, bytes]) -> Any:
    body = codec.encode_response(DESCRIBE_LOG_DIRS, 1, 1, {"throttle_time_ms": 0, "results": [DIRECTORY]})[8:]
    for before, after in damages:
        assert body.count(before) == 1
        body = body.replace(before, after)
    return DescribeLogDirsResponse.decode(body, version=1)


@pytest.mark.parametrize(
    ("damages", "field"),
    [
        ((), None),
        (((b"\0\0\0\1\0\0\0\5/logs", NULL),), "results"),
        (((b"\0\5/logs", b"\xff\xff"),), "log_dir"),
        (((b"\0\0\0\1\0\1t", NULL),), "topics"),
        (((b"\0\1t\0\0\0\1", b"\0\1t" + NULL),), "partitions"),
    ],
)
def test_a_null_is_found_at_any_depth(damages: tuple[tuple[bytes, bytes], ...], field: str | None) -> None:
    assert misplaced_null(of_log_dirs(*damages)) == field


@pytest.mark.parametrize(("version", "null"), [(1, "rack"), (9, "cluster_id")])
def test_what_may_be_null_is_no_fault(version: int, null: str) -> None:
    broker = {"node_id": 1, "host": "h", "port": 1, "rack": None}
    fields = {"brokers": [broker], "cluster_id": None, "controller_id": 1, "topics": []}
    whole = codec.encode_response(METADATA, version, 1, fields)
    answer = MetadataResponse.decode(whole[8 + (version >= 9) :], version=version)
    assert getattr(answer.brokers[0] if null == "rack" else answer, null) is None
    assert misplaced_null(answer) is None


def test_a_version_without_the_field_does_not_lack_it() -> None:
    group = {
        "error_code": 0,
        "group_id": "g",
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }
    body = codec.encode_response(DESCRIBE_GROUPS, 0, 1, {"groups": [group]})[8:]
    assert misplaced_null(DescribeGroupsResponse.decode(body, version=0)) is None


async def test_a_command_says_that_the_answer_cannot_be_read() -> None:
    """It ended in kafka-python's TypeError: 'NoneType' object is not iterable."""

    def script(asked: Asked) -> Answer:
        if asked.api_key == API_VERSIONS:
            keys = [{"api_key": key, "min_version": 0, "max_version": most} for key, most in OFFERED.items()]
            return {"error_code": 0, "api_keys": keys}
        if asked.api_key == METADATA:
            here = {"node_id": 1, "host": "127.0.0.1", "port": broker.port, "rack": None}
            return {"brokers": [here], "cluster_id": "c", "controller_id": 1, "topics": []}
        head = (12).to_bytes(4, "big") + asked.correlation_id.to_bytes(4, "big")
        return head + bytes(4) + NULL

    async with ScriptedBroker(script) as broker:
        settings = ClusterSettings.read(f"127.0.0.1:{broker.port}", {"total_timeout_s": 1, "request_timeout_s": 5})

        def ask() -> None:
            client = KafkaClusterClient(settings)
            try:
                client.log_dirs([1])
            finally:
                client.close()

        with pytest.raises(
            ClusterUnreachable, match=r"^the cluster did not answer: its answer cannot be read \(results"
        ):
            await asyncio.to_thread(ask)
