"""Settings that ZooKeeper does not let this broker read: they fail what is asked about them, and nothing else."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.protocol import codec
from logyard.broker.server.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    describe_client_quotas,
    describe_user_scram_credentials,
    incremental_alter_configs,
)
from logyard.broker.server.request import Fields, Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import configs
from logyard.broker.znodes.ops import Create
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.guarded_zookeeper import GuardedZooKeeper

EXACT, DEFAULT, ANY = range(3)
REFUSED = int(ErrorCode.UNKNOWN_SERVER_ERROR)
GUARDED = [f"/config/{path}" for path in ("topics/guarded", "users/guarded", "clients/guarded", "ips/9.9.9.9")]


@pytest.fixture
async def broker() -> Services:
    tree = ZooKeeperTree(ManualClock(5_000))
    zk = MemoryZooKeeper(tree)
    await create_persistent_paths(zk)
    quota, rate = {"producer_byte_rate": "1"}, {"connection_creation_rate": "1"}
    login = {"SCRAM-SHA-256": ScramCredential.of_password("SCRAM-SHA-256", "pw", 4096, b"salt").text()}
    for name in ("guarded", "open"):
        await zk.multi([Create(f"/config/topics/{name}", configs.encode({}))])
        await zk.multi([Create(f"/config/users/{name}", configs.encode(quota | login))])
        await zk.multi([Create(f"/config/clients/{name}", configs.encode(quota))])
    await zk.multi([Create("/config/users/open/clients")])
    await zk.multi([Create("/config/users/open/clients/c", configs.encode(quota))])
    for address in ("9.9.9.9", "1.1.1.1"):
        await zk.multi([Create(f"/config/ips/{address}", configs.encode(rate))])
    made = SimpleNamespace(
        zk=GuardedZooKeeper(tree, *GUARDED),
        turns=Turns(),
        rights=EverythingAllowed(),
        controller=SimpleNamespace(is_active=True),
        metadata={"guarded": None, "open": None},
        configs=SimpleNamespace(topic_overrides=lambda name: {}),
        alter_config_policy=None,
    )
    return cast(Services, made)


def request(api_key: int, version: int, fields: Fields) -> tuple[Request, Any]:
    frame = memoryview(bytearray(codec.encode_request(api_key, version, 1, "c", fields)))[4:]
    body = frame[11 + codec.is_flexible(api_key, version) :]
    asked = Request(api_key, version, 1, "c", body, Session(1, "PLAINTEXT", "127.0.0.1"))
    return asked, codec.decode_request(api_key, version, body)


async def quotas(broker: Services, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    wanted = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    answer = await describe_client_quotas.handle(broker, *request(48, 1, {"components": wanted, "strict": strict}))
    return [[(part["entity_type"], part["entity_name"]) for part in entry["entity"]] for entry in answer["entries"]]


@pytest.mark.parametrize("strict", [False, True])
async def test_a_question_about_one_entity_s_quotas_reads_that_one(broker: Services, strict: bool) -> None:
    user, client = ("user", "open"), ("client-id", "c")
    assert [user] in await quotas(broker, ("user", EXACT, "open"), strict=True)
    assert await quotas(broker, ("user", EXACT, "open"), ("client-id", EXACT, "c"), strict=strict) == [[user, client]]
    assert await quotas(broker, ("user", DEFAULT, None), ("client-id", ANY, None), strict=strict) == []
    assert await quotas(broker, ("client-id", EXACT, "open"), strict=True) == [[("client-id", "open")]]
    assert await quotas(broker, ("ip", EXACT, "1.1.1.1"), strict=strict) == [[("ip", "1.1.1.1")]]
    for kind in ("user", "client-id", "ip"):
        assert await quotas(broker, (kind, EXACT, ""), strict=strict) == []
        assert await quotas(broker, (kind, EXACT, "x" * 32_000), strict=strict) == []
    assert await quotas(broker, ("user", ANY, None), ("client-id", EXACT, ""), strict=strict) == []


@pytest.mark.parametrize("asked", [[], [("user", ANY, None)], [("user", EXACT, "guarded")], [("ip", ANY, None)]])
async def test_a_question_about_all_fails_as_with_kafka(broker: Services, asked: list[Any]) -> None:
    with pytest.raises(LogyardError, match="does not let this identity read"):
        await quotas(broker, *asked)


async def test_named_users_have_errors_of_their_own(broker: Services) -> None:
    asked = {"users": [{"name": name} for name in ("open", "guarded", "nobody")]}
    answer = await describe_user_scram_credentials.handle(broker, *request(50, 0, asked))
    codec.encode_response(50, 0, 1, answer)
    assert [(r["user"], r["error_code"], len(r["credential_infos"])) for r in answer["results"]] == [
        ("open", 0, 1),
        ("guarded", REFUSED, 0),
        ("nobody", int(ErrorCode.RESOURCE_NOT_FOUND), 0),
    ]
    with pytest.raises(LogyardError, match="does not let this identity read"):
        await describe_user_scram_credentials.handle(broker, *request(50, 0, {"users": None}))


async def test_what_cannot_be_altered_does_not_hide_what_was(broker: Services) -> None:
    """The whole answer was an error, after some of it had been written."""
    names = ("open", "guarded")
    ops = [{"key": "consumer_byte_rate", "value": 2.0, "remove": False}]
    entries = [{"entity": [{"entity_type": "user", "entity_name": name}], "ops": ops} for name in names]
    asked = request(49, 1, {"entries": entries, "validate_only": False})
    answer = await alter_client_quotas.handle(broker, *asked)
    assert [entry["error_code"] for entry in answer["entries"]] == [0, REFUSED]
    deletions = [{"name": name, "mechanism": 1} for name in names]
    asked = request(51, 0, {"deletions": deletions, "upsertions": []})
    answer = await alter_user_scram_credentials.handle(broker, *asked)
    assert {r["user"]: r["error_code"] for r in answer["results"]} == {"open": 0, "guarded": REFUSED}


@pytest.mark.parametrize(
    ("handler", "api_key", "version"), [(alter_configs, 33, 2), (incremental_alter_configs, 44, 1)]
)
async def test_a_topic_that_cannot_be_altered_does_not_hide_another(
    broker: Services, handler: Any, api_key: int, version: int
) -> None:
    settings = [{"name": "retention.ms", "value": "5", "config_operation": 0}]
    named = [{"resource_type": 2, "resource_name": name, "configs": settings} for name in ("open", "guarded")]
    asked = request(api_key, version, {"resources": named, "validate_only": False})
    answer = await handler.handle(broker, *asked)
    assert [told["error_code"] for told in answer["responses"]] == [0, REFUSED]
    (znode,) = await broker.zk.read(["/config/topics/open"])
    assert znode is not None
    assert configs.decode(znode.data) == {"retention.ms": "5"}


async def test_a_filter_of_very_many_components_is_not_looked_through(broker: Services) -> None:
    class Many(list[Any]):
        looks = 0

        def __iter__(self) -> Any:
            for each in super().__iter__():
                self.looks += 1
                yield each

    components = Many([SimpleNamespace(entity_type="user", match_type=ANY, match=None)] * 10_000)
    with pytest.raises(ApiError, match="user is named more than once"):
        await describe_client_quotas.handle(
            broker, cast(Any, None), SimpleNamespace(components=components, strict=True)
        )
    assert components.looks < 10
