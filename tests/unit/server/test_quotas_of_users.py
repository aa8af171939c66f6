"""Quotas of users with names, as the authorizer's principals have them: the name without its type (facts §18.7)."""

from pathlib import Path
from typing import Any

import pytest

from logyard.broker.records.batch import Record, build
from logyard.broker.znodes import configs
from tests.support.principals import Client, Secured

NAME = "CN=a b~*,O=\u00fc:x"  # what has to be encoded in a znode's name
OTHER = "CN=c"
LIMIT = 10.0


def produce() -> dict[str, Any]:
    part = [{"index": 0, "records": bytes(build([Record(0, 1, b"k", b"v" * 2000)]))}]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": part}]}


async def throttled(client: Client) -> bool:
    return bool((await client.ask("Produce", 9, **produce())).throttle_time_ms)


@pytest.mark.parametrize("client_id", [None, "c"])
async def test_a_quota_holds_for_the_user_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client_id: str | None
) -> None:
    async with Secured(tmp_path, monkeypatch, super_users=f"User:{OTHER};User:{NAME};User:ANONYMOUS") as broker:
        await broker.create_topic("t", 1)
        one, other = await broker.client(f"User:{NAME}"), await broker.client(f"User:{OTHER}")
        entity = [{"entity_type": "user", "entity_name": NAME}]
        if client_id is not None:
            entity.append({"entity_type": "client-id", "entity_name": client_id})
        ops = [{"key": "producer_byte_rate", "value": LIMIT, "remove": False}]
        asked: dict[str, Any] = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        (answer,) = (await other.ask("AlterClientQuotas", **asked)).entries
        assert answer.error_code == 0
        (names,) = await broker.components.services.zk.children(["/config/users"])
        assert names == [configs.sanitize(NAME)] == ["CN%3Da%20b%7E%2A%2CO%3D%C3%BC%3Ax"]
        for _ in range(500):
            if await throttled(one):
                break
        else:
            pytest.fail("never throttled")
        assert not await throttled(other)
