"""BROKER_LOGGER in DescribeConfigs and IncrementalAlterConfigs (KIP-412)."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from logyard.broker.log_levels import AUDIT, LOGGERS, LogLevels
from logyard.broker.znodes.acls import Operation, ResourceType
from tests.support.principals import Client, Secured, acl

SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID_CONFIG, INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED = 40, 42, 31


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    async with Secured(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
async def root(broker: Secured) -> Client:
    return await broker.client("User:root")


async def described(client: Client, name: str = "1", *keys: str, version: int | None = None) -> Any:
    resource = {"resource_type": 8, "resource_name": name, "configuration_keys": list(keys) or None}
    (result,) = (await client.ask("DescribeConfigs", version, resources=[resource])).results
    return result


async def levels(client: Client) -> dict[str, str]:
    return {entry.name: entry.value for entry in (await described(client)).configs}


async def alter(client: Client, *changes: tuple[str, int, str | None], name: str = "1", only: bool = False) -> Any:
    configs = [{"name": of, "config_operation": how, "value": value} for of, how, value in changes]
    resource = {"resource_type": 8, "resource_name": name, "configs": configs}
    (result,) = (await client.ask("IncrementalAlterConfigs", resources=[resource], validate_only=only)).responses
    return result


async def test_loggers_are_described_as_by_kafka(root: Client) -> None:
    found = await described(root)
    assert found.error_code == 0
    assert {entry.name: entry.value for entry in found.configs} == dict.fromkeys(LOGGERS, "INFO")
    entry = found.configs[0]
    assert (entry.config_source, entry.config_type, entry.read_only, entry.is_sensitive) == (6, 0, False, False)
    assert not entry.synonyms
    (one,) = (await described(root, "1", "logyard.groups", "no.such")).configs
    assert one.name == "logyard.groups"
    (old,) = (await described(root, "1", "root", version=0)).configs
    assert (old.name, old.is_default) == ("root", False)


async def test_levels_are_set_and_deleted(root: Client) -> None:
    answer = await alter(root, ("logyard", SET, "DEBUG"), ("logyard.groups", SET, "TRACE"), ("root", SET, "WARN"))
    assert answer.error_code == 0
    found = await levels(root)
    assert (found["root"], found["logyard.fetcher"], found["logyard.groups"], found[AUDIT]) == (
        "WARN",
        "DEBUG",
        "TRACE",
        "INFO",
    )
    assert (await alter(root, ("logyard.groups", DELETE, None), ("logyard", DELETE, ""))).error_code == 0
    assert {level for name, level in (await levels(root)).items() if name != AUDIT} == {"WARN"}


async def test_nothing_is_set_where_it_is_only_asked_or_a_part_is_refused(root: Client) -> None:
    assert (await alter(root, ("logyard", SET, "DEBUG"), only=True)).error_code == 0
    assert (await alter(root, ("logyard", SET, "DEBUG"), ("no.such", SET, "DEBUG"))).error_code == INVALID_CONFIG
    assert set((await levels(root)).values()) == {"INFO"}


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("no.such", SET, "DEBUG"), INVALID_CONFIG, "Logger no.such does not exist!"),
        (("no.such", DELETE, None), INVALID_CONFIG, "Logger no.such does not exist!"),
        (("root", SET, "LOUD"), INVALID_CONFIG, "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        (("root", SET, "debug"), INVALID_CONFIG, "not a supported log level"),
        (("root", SET, None), INVALID_REQUEST, "a value is needed"),
        (("root", DELETE, None), INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        (("root", APPEND, "DEBUG"), INVALID_REQUEST, "not appended to"),
        (("root", SUBTRACT, "DEBUG"), INVALID_REQUEST, "not appended to"),
        (("root", 9, "DEBUG"), INVALID_REQUEST, "set and deleted"),
    ],
)
async def test_what_is_refused(root: Client, change: tuple[str, int, str | None], code: int, said: str) -> None:
    answer = await alter(root, change)
    assert answer.error_code == code
    assert said in answer.error_message
    assert set((await levels(root)).values()) == {"INFO"}


@pytest.mark.parametrize("name", ["", "2", "one"])
async def test_only_the_broker_itself_answers(root: Client, name: str) -> None:
    found = await described(root, name)
    assert (found.error_code, found.configs) == (INVALID_REQUEST, [])
    assert (await alter(root, ("root", SET, "DEBUG"), name=name)).error_code == INVALID_REQUEST


async def test_the_older_api_has_no_loggers(root: Client) -> None:
    resource = {"resource_type": 8, "resource_name": "1", "configs": [{"name": "root", "value": "DEBUG"}]}
    (answer,) = (await root.ask("AlterConfigs", resources=[resource], validate_only=False)).responses
    assert answer.error_code == INVALID_REQUEST
    assert set((await levels(root)).values()) == {"INFO"}


async def test_rights(broker: Secured) -> None:
    client = await broker.client("User:a")
    broker.put(acl("User:a", Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, "kafka-cluster"))
    assert (await described(client)).error_code == 0
    assert (await alter(client, ("root", SET, "DEBUG"))).error_code == CLUSTER_AUTHORIZATION_FAILED
    # As by Kafka the right is looked at before the id and the names.
    assert (await alter(client, ("no.such", SET, "x"), name="9")).error_code == CLUSTER_AUTHORIZATION_FAILED
    broker.put()
    assert (await described(client, "9")).error_code == CLUSTER_AUTHORIZATION_FAILED


async def test_the_audit_log_has_what_is_allowed_at_debug(broker: Secured, root: Client) -> None:
    async def told() -> list[str]:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
        with structlog.testing.capture_logs() as lines:
            await root.ask("DescribeLogDirs", topics=[])
        return [line["log_level"] for line in lines if "User:root is Allowed" in line["event"]]

    assert await told() == []
    assert (await alter(root, (AUDIT, SET, "DEBUG"))).error_code == 0
    assert await told() == ["debug"]
    assert (await alter(root, (AUDIT, DELETE, None))).error_code == 0
    assert await told() == []


async def test_each_change_is_logged(broker: Secured, root: Client) -> None:
    with structlog.testing.capture_logs() as lines:
        await alter(root, ("logyard.groups", SET, "ERROR"), ("logyard", DELETE, None))
    said = [(line["event"], line["of"], line["log_level"]) for line in lines if "level of a logger" in line["event"]]
    assert said == [
        ("level of a logger set", "logyard.groups", "warning"),
        ("level of a logger removed", "logyard", "warning"),
    ]


def test_each_broker_has_levels_of_its_own() -> None:
    one, other = LogLevels(), LogLevels()
    one.set("root", "ERROR")
    assert other.level("root") == "INFO"
