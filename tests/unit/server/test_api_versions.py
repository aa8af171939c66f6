"""The advertised ranges against what Apache Kafka 3.9 advertises (facts §19), and against what can be encoded."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.features import FinalizedFeatures
from logyard.broker.protocol import codec
from logyard.broker.server.api_table import VERSIONS
from logyard.broker.server.handlers import api_versions
from logyard.broker.server.services import Services

KAFKA_3_9 = """
0 0-11 1 0-17 2 0-9 3 0-12 4 0-7 5 0-4 6 0-8 7 0-3 8 0-9 9 0-9 10 0-6 11 0-9 12 0-4 13 0-5 14 0-5 15 0-5 16 0-5 17 0-1
18 0-4 19 0-7 20 0-6 21 0-2 22 0-5 23 0-4 24 0-5 25 0-4 26 0-4 27 0-1 28 0-4 29 0-3 30 0-3 31 0-3 32 0-4 33 0-2 34 0-2
35 0-4 36 0-2 37 0-3 38 0-3 39 0-2 40 0-2 41 0-3 42 0-2 43 0-2 44 0-1 45 0-0 46 0-0 47 0-0 48 0-1 49 0-1 50 0-0 51 0-0
56 0-3 57 0-1 58 0-0 60 0-1 61 0-0 65 0-0 66 0-1 67 0-0 68 0-0 69 0-0
"""

FEATURES = FinalizedFeatures(3, {"transaction.version": 2})
SERVICES = cast(Services, SimpleNamespace(api_versions=VERSIONS, features=FEATURES))


def test_ranges_are_those_of_kafka() -> None:
    words = KAFKA_3_9.split()
    ranges = {int(key): tuple(map(int, text.split("-"))) for key, text in zip(words[::2], words[1::2], strict=True)}
    # Produce, EndTxn, WriteTxnMarkers and TxnOffsetCommit of `transaction.version` 2 (facts §17.12).
    later = {key: served for key, served in VERSIONS.items() if ranges[key] != served}
    assert later == {0: (0, 12), 26: (0, 5), 27: (0, 2), 28: (0, 5)}
    assert all(low == ranges[key][0] and high == ranges[key][1] + 1 for key, (low, high) in later.items())


def test_what_is_advertised_can_be_read_and_written() -> None:
    for api_key, (low, high) in VERSIONS.items():
        for version in range(low, high + 1):
            request = codec.encode_request(api_key, version, 1, None, {})
            head = 12 if (api_key, version) == (7, 0) else 14 + codec.is_flexible(api_key, version)
            codec.decode_request(api_key, version, memoryview(request)[head:])
            answer = codec.encode_response(api_key, version, 1, {})
            assert codec.decode_response(api_key, version, memoryview(answer)[4:])[0] == 1


@pytest.mark.parametrize(
    ("name", "version", "taken"),
    [
        ("librdkafka", "2.16.1", True),
        ("a", "1", True),
        ("apache-kafka-java", "3.9.0-SNAPSHOT", True),
        ("", "1", False),
        ("a", "", False),
        ("with space", "1", False),
        ("-a", "1", False),
        ("a", "1.", False),
        ("a\n", "1", False),
        ("ä", "1", False),
    ],
)
def test_what_is_no_name_of_a_client_is_refused_as_in_kafka(name: str, version: str, taken: bool) -> None:
    message = SimpleNamespace(client_software_name=name, client_software_version=version)
    session = SimpleNamespace(client_software=None)
    request = cast(Any, SimpleNamespace(api_version=3, session=session))
    answer = cast(Any, api_versions.handle(SERVICES, request, message))
    assert answer["error_code"] == (0 if taken else ErrorCode.INVALID_REQUEST)
    assert bool(answer["api_keys"]) is taken
    assert (session.client_software is not None) is taken
    request.api_version = 2
    assert cast(Any, api_versions.handle(SERVICES, request, message))["error_code"] == 0


def test_features_are_advertised() -> None:
    request = cast(Any, SimpleNamespace(api_version=2))
    answer = api_versions.handle(SERVICES, request, None)
    encoded = codec.encode_response(18, 3, 1, cast(Any, answer))
    _, read = codec.decode_response(18, 3, memoryview(encoded)[4:])
    assert [(f.name, f.min_version, f.max_version) for f in read.supported_features] == [("transaction.version", 1, 2)]
    assert [(f.name, f.max_version_level) for f in read.finalized_features] == [("transaction.version", 2)]
    assert read.finalized_features_epoch == 3
