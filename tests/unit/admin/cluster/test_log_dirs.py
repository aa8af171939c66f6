"""What brokers say of their log directories, and what it means that they say nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DescribeLogDirsResponse

from logyard.admin.cluster import connection
from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.protocol import codec

DESCRIBE_LOG_DIRS = 35


class Connected:
    """A connection to brokers that give one answer, over the bytes of one version."""

    def __init__(self, version: int, fields: dict[str, Any]) -> None:
        whole = codec.encode_response(DESCRIBE_LOG_DIRS, version, 1, fields)
        self.body, self.version = whole[4 + 4 + (version >= 2) :], version

    def send(self, request: Any, node: int | None = None) -> Any:
        return DescribeLogDirsResponse.decode(self.body, version=self.version)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Callable[..., KafkaClusterClient]:
    def of(version: int, **fields: Any) -> KafkaClusterClient:
        monkeypatch.setattr(connection, "connect", lambda *_: Connected(version, fields))
        return KafkaClusterClient(ClusterSettings.read("127.0.0.1:1", {}))

    return of


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (3, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (4, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_broker_that_may_not_tell_is_not_an_empty_one(
    version: int, code: ErrorCode, client: Callable[..., KafkaClusterClient]
) -> None:
    refused = client(version, error_code=int(code), results=[])
    for ask in (refused.log_dirs, refused.replica_sizes):
        with pytest.raises(ApiError) as raised:
            ask([1])
        assert raised.value.code is code


@pytest.mark.parametrize("version", [1, 4])
def test_an_empty_directory_is_one(version: int, client: Callable[..., KafkaClusterClient]) -> None:
    directory = {"error_code": 0, "log_dir": "/logs", "topics": [], "total_bytes": 10, "usable_bytes": 4}
    found = client(version, error_code=0, results=[directory]).log_dirs([1])
    assert (found.replicas, [(each.path, each.usable) for each in found.directories]) == (
        (),
        [("/logs", 4 if version >= 4 else None)],
    )
