"""How a job's first connection to a cluster fails: soon, in words, and with one login; on real sockets."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.spark_jobs import metadata
from logyard.spark_jobs.metadata import ClusterUnreachable, MetadataClient
from tests.support.scripted_broker import Answer, Asked, Hang, HangUp, ScriptedBroker

API_VERSIONS, METADATA, HANDSHAKE, AUTHENTICATE, DESCRIBE_CONFIGS = 18, 3, 17, 36, 32
OFFERED = {API_VERSIONS: 3, METADATA: 9, HANDSHAKE: 1, AUTHENTICATE: 1, DESCRIBE_CONFIGS: 4}
LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "username": "ann", "password": "hunter2"}


class Refusing:
    """A broker that refuses what it is asked for: logins, and descriptions of itself."""

    def __init__(self) -> None:
        self.broker = ScriptedBroker(self._answer)

    def _answer(self, asked: Asked) -> Answer:
        here = {"node_id": 1, "host": "127.0.0.1", "port": self.broker.port, "rack": None}
        match asked.api_key:
            case 18:
                keys = [{"api_key": key, "min_version": 0, "max_version": most} for key, most in OFFERED.items()]
                return {"error_code": 0, "api_keys": keys}
            case 17:
                return {"error_code": 0, "mechanisms": ["PLAIN"]}
            case 36:
                code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
                return {"error_code": code, "error_message": "Invalid username or password", "auth_bytes": b""}
            case 3:
                return {"brokers": [here], "cluster_id": "c", "controller_id": 1, "topics": []}
            case 32:
                of = {"resource_type": 4, "resource_name": "1", "configs": []}
                code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                return {"results": [{**of, "error_code": code, "error_message": None}]}
        return HangUp()

    @property
    def logins(self) -> int:
        return sum(asked.api_key == AUTHENTICATE for asked in self.broker.asked)


@pytest.fixture
async def refusing() -> AsyncIterator[Refusing]:
    made = Refusing()
    async with made.broker:
        yield made


async def said(port: int, security: Mapping[str, Any], key: str = "") -> str:
    """What a job says that cannot connect, or cannot read a config of broker 1."""

    def ask() -> None:
        client = MetadataClient(f"127.0.0.1:{port}", security)
        try:
            client.broker_config(1, key)
        finally:
            client.close()

    def work() -> str:
        with pytest.raises(ClusterUnreachable) as raised:
            ask()
        return str(raised.value).replace(f"127.0.0.1:{port}", "X")

    return await asyncio.to_thread(work)


async def test_a_refused_login_is_said_and_not_repeated(refusing: Refusing) -> None:
    """Brokers slow down who guesses, and directories lock a user out."""
    began = time.monotonic()
    assert await said(refusing.broker.port, LOGIN) == (
        "the login of 'ann' is refused (X: the log-in is refused (Invalid username or password))"
    )
    assert time.monotonic() - began < metadata.REQUEST_TIMEOUT_S / 2
    assert refusing.logins == 1


async def test_a_missing_right_is_told_in_words(refusing: Refusing) -> None:
    assert await said(refusing.broker.port, {}, "http.advertised.listener") == (
        "broker 1: access to the cluster is denied: the login needs DescribeConfigs on it"
    )


async def test_a_server_that_is_silent_takes_the_time_of_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "REQUEST_TIMEOUT_S", 0.5)
    async with ScriptedBroker(lambda asked: Hang()) as broker:
        began = time.monotonic()
        text = await said(broker.port, {})
        assert time.monotonic() - began < 10
    assert text == "no broker answered (X: no answer in time): check addresses, protocol and credentials"


async def test_what_is_no_address_is_said(refusing: Refusing) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ClusterUnreachable) as raised:
        MetadataClient(f"nonsense,127.0.0.1:{port}", {})
    assert str(raised.value) == (
        f"no broker answered (nonsense: host:port is expected; 127.0.0.1:{port}: connection refused): check addresses, "
        "protocol and credentials"
    )
