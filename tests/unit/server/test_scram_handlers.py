"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): every branch of facts §18.1."""

import hashlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.protocol import codec
from logyard.broker.server import authorization
from logyard.broker.server.handlers import alter_user_scram_credentials, describe_user_scram_credentials
from logyard.broker.server.request import Fields, Request, Session
from logyard.broker.server.rights import CLUSTER, EverythingAllowed, Operation, Resource
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.ops import Create, SetData, Znode
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.longest_turn import longest_turn

SHA256, SHA512 = 1, 2
SALT = b"0123456789"
SALTED = hashlib.pbkdf2_hmac("sha256", b"pw", SALT, 4096)


@dataclass
class Only:
    """Rights that allow one operation, or nothing."""

    allowed: Operation | None = None

    def allow(
        self,
        session: Session,
        operation: Operation,
        resource: Resource,
        name: str,
        api_key: int | str = -1,
        count: int = 1,
    ) -> bool:
        assert (resource, name) == (Resource.CLUSTER, CLUSTER)
        return operation is self.allowed


async def services(*, active: bool = True, rights: Any = None) -> Services:
    zk = MemoryZooKeeper(ZooKeeperTree(ManualClock(5_000)))
    for path in ("/config", "/config/users", "/config/changes"):
        await zk.multi([Create(path)])
    return cast(
        Services,
        SimpleNamespace(
            zk=zk,
            turns=Turns(),
            controller=SimpleNamespace(is_active=active),
            rights=rights or EverythingAllowed(),
        ),
    )


def request(api_key: int, fields: Fields) -> tuple[Request, Any]:
    frame = memoryview(bytearray(codec.encode_request(api_key, 0, 1, "c", fields)))[4:]
    body = frame[12:]
    asked = Request(api_key, 0, 1, "c", body, Session(1, "PLAINTEXT", "127.0.0.1"))
    return asked, codec.decode_request(api_key, 0, body)


def setting(name: str, mechanism: int = SHA256, iterations: int = 4096, **other: Any) -> dict[str, Any]:
    fields = {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": SALT, "salted_password": SALTED}
    return fields | other


def deletion(name: str, mechanism: int = SHA256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


async def alter(broker: Services, *changes: dict[str, Any]) -> dict[str, tuple[ErrorCode, str | None]]:
    fields = {
        "deletions": [change for change in changes if "salt" not in change],
        "upsertions": [change for change in changes if "salt" in change],
    }
    asked = request(51, fields)
    authorization.admit(broker, *asked)
    answer = await alter_user_scram_credentials.handle(broker, *asked)
    codec.encode_response(51, 0, 1, answer)
    users = [result["user"] for result in answer["results"]]
    assert len(users) == len(set(users))
    return {r["user"]: (ErrorCode(r["error_code"]), r["error_message"]) for r in answer["results"]}


async def describe(broker: Services, *users: str) -> list[tuple[str, ErrorCode, list[tuple[int, int]]]]:
    asked = {"users": [{"name": user} for user in users] or None}
    told = request(50, asked)
    authorization.admit(broker, *told)
    answer = await describe_user_scram_credentials.handle(broker, *told)
    codec.encode_response(50, 0, 1, answer)
    return [
        (r["user"], ErrorCode(r["error_code"]), [(c["mechanism"], c["iterations"]) for c in r["credential_infos"]])
        for r in answer["results"]
    ]


async def settings_of(broker: Services, user: str) -> dict[str, str]:
    (znode,) = await broker.zk.read([configs.path(configs.USERS, configs.sanitize(user))])
    return {} if znode is None else configs.decode(znode.data)


async def notified(broker: Services) -> list[str]:
    (names,) = await broker.zk.children([config_changes.PATH])
    znodes = await broker.zk.read([config_changes.path(name) for name in names or ()])
    return ["/".join(config_changes.decode(znode.data)) for znode in znodes if znode is not None]


async def test_a_credential_is_written_beside_the_quotas_and_told() -> None:
    broker = await services()
    await broker.zk.multi([Create("/config/users/al%20ice", configs.encode({"producer_byte_rate": "5"}))])
    assert await alter(broker, setting("al ice", iterations=8192)) == {"al ice": (ErrorCode.NONE, None)}
    found = await settings_of(broker, "al ice")
    expected = ScramCredential.of("SCRAM-SHA-256", SALT, SALTED, 8192)
    assert found == {"producer_byte_rate": "5", "SCRAM-SHA-256": expected.text()}
    assert await notified(broker) == ["users/al%20ice"]
    assert await describe(broker) == [("al ice", ErrorCode.NONE, [(SHA256, 8192)])]


async def test_the_password_of_the_salted_one_logs_in() -> None:
    broker = await services()
    await alter(broker, setting("a"))
    stored = ScramCredential.parse((await settings_of(broker, "a"))["SCRAM-SHA-256"])
    assert stored == ScramCredential.of_password("SCRAM-SHA-256", "pw", 4096, SALT)


async def test_all_who_have_one_are_described_sorted() -> None:
    broker = await services()
    await broker.zk.multi([Create("/config/users/<default>", configs.encode({"producer_byte_rate": "5"}))])
    await broker.zk.multi([Create("/config/users/quota-only", configs.encode({"producer_byte_rate": "5"}))])
    await alter(broker, setting("z"), setting("b", SHA512, 5000), setting("b", SHA256))
    both = [(SHA256, 4096), (SHA512, 5000)]
    assert await describe(broker) == [("b", ErrorCode.NONE, both), ("z", ErrorCode.NONE, [(SHA256, 4096)])]


async def test_named_users_are_described_once_in_their_order() -> None:
    broker = await services()
    await broker.zk.multi([Create("/config/users/quota-only", configs.encode({"producer_byte_rate": "5"}))])
    await alter(broker, setting("b"))
    missing, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
    assert await describe(broker, "x", "b", "", "quota-only", "x", "") == [
        ("x", twice, []),
        ("b", ErrorCode.NONE, [(SHA256, 4096)]),
        ("", missing, []),
        ("quota-only", missing, []),
    ]


@pytest.mark.parametrize(
    "content", [b'{"version":1,"config":{"SCRAM-SHA-256":"secret"}}', b"secret", b'{"version":1,"config":"secret"}']
)
async def test_a_broken_znode_is_that_user_s_error_and_is_not_shown(content: bytes) -> None:
    broker = await services()
    await alter(broker, setting("b"), setting("broken"))
    await broker.zk.multi([SetData("/config/users/broken", content)])
    answer = await describe_user_scram_credentials.handle(broker, *request(50, {"users": None}))
    assert "secret" not in str(answer)
    assert [(r["user"], r["error_code"]) for r in answer["results"]] == [
        ("b", ErrorCode.NONE),
        ("broken", ErrorCode.UNKNOWN_SERVER_ERROR),
    ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (setting(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("u", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (setting("u", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("u", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (setting("u", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("u", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting("u", salted_password=bytes((1 << 20) + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion("u"), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
async def test_one_fault_refuses_all_of_that_user_and_nothing_of_others(
    change: dict[str, Any], code: ErrorCode
) -> None:
    broker = await services()
    answers = await alter(broker, setting(change["name"], SHA512), setting("other"), change)
    assert {user: answer[0] for user, answer in answers.items()} == {change["name"]: code, "other": ErrorCode.NONE}
    assert await settings_of(broker, "u") == {}
    assert await notified(broker) == ["users/other"]


async def test_the_ends_of_the_range_of_iterations_are_accepted() -> None:
    broker = await services()
    answers = await alter(broker, setting("a", iterations=4096), setting("b", iterations=16384))
    assert set(answers.values()) == {(ErrorCode.NONE, None)}


@pytest.mark.parametrize("other", [setting("u"), deletion("u")])
async def test_the_same_credential_twice_is_refused(other: dict[str, Any]) -> None:
    broker = await services()
    assert (await alter(broker, setting("u"), other))["u"][0] is ErrorCode.DUPLICATE_RESOURCE
    assert await settings_of(broker, "u") == {}


@pytest.mark.parametrize("large", [{"name": "%" * 25_000}, {"salt": bytes(700_000)}])
async def test_what_zookeeper_does_not_take_is_not_sent(large: dict[str, Any]) -> None:
    """ZooKeeper closes the broker's connection on a request above its jute.maxbuffer."""
    broker = await services()
    ((code, text),) = (await alter(broker, setting("a") | large)).values()
    assert code is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert text
    assert await broker.zk.children(["/config/users"]) == [[]]


async def test_a_user_whose_name_zookeeper_cannot_have_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await services()
    await alter(broker, setting("b"))
    asked: list[str] = []
    reads = ZooKeeperTree.read

    def read(tree: ZooKeeperTree, path: str) -> Znode | None:
        asked.append(path)
        return reads(tree, path)

    monkeypatch.setattr(ZooKeeperTree, "read", read)
    name = "%" * 25_000
    missing = ErrorCode.RESOURCE_NOT_FOUND
    assert await describe(broker, name, "b") == [(name, missing, []), ("b", ErrorCode.NONE, [(SHA256, 4096)])]
    assert asked == ["/config/users/b"]


@pytest.mark.parametrize("length", [16_000, 10_000])  # ZooKeeper cannot have the first
async def test_long_names_of_users_are_described_in_turns(length: int) -> None:
    """To encode one takes a millisecond."""
    broker = await services()
    names = [f"{number}{'é' * length}" for number in range(150)]
    async with longest_turn() as longest:
        found = await describe(broker, *names)
    assert [code for _, code, _ in found] == [ErrorCode.RESOURCE_NOT_FOUND] * len(names)
    assert longest.seconds < 0.05


async def test_one_mechanism_is_deleted_while_the_other_is_set() -> None:
    broker = await services()
    await alter(broker, setting("u", SHA256))
    assert await alter(broker, deletion("u", SHA256), setting("u", SHA512)) == {"u": (ErrorCode.NONE, None)}
    assert (await settings_of(broker, "u")).keys() == {"SCRAM-SHA-512"}
    assert await alter(broker, deletion("u", SHA512)) == {"u": (ErrorCode.NONE, None)}
    assert (await broker.zk.read([configs.path(configs.USERS, "u")])) == [None], "as in Kafka"
    assert await describe(broker) == []


async def test_another_s_change_of_the_same_user_is_kept() -> None:
    broker = await services()
    await alter(broker, setting("u"))
    multi, others = broker.zk.multi, [configs.encode({"consumer_byte_rate": "7"})]

    async def meanwhile(ops: Any) -> Any:
        if others and isinstance(ops[0], SetData):
            await multi([SetData("/config/users/u", others.pop())])
        return await multi(ops)

    broker.zk.multi = meanwhile  # type: ignore[method-assign]
    assert await alter(broker, setting("u", SHA512)) == {"u": (ErrorCode.NONE, None)}
    assert (await settings_of(broker, "u")).keys() == {"consumer_byte_rate", "SCRAM-SHA-512"}


async def test_only_the_controller_alters_and_that_is_checked_before_the_right() -> None:
    for active, code in ((False, ErrorCode.NOT_CONTROLLER), (True, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)):
        broker = await services(active=active, rights=Only(Operation.DESCRIBE))
        with pytest.raises(ApiError) as refused:
            await alter(broker, setting("b"), deletion("a"))
        assert refused.value.code is code
    _, message = request(51, {"deletions": [deletion("a"), deletion("b")], "upsertions": [setting("b"), setting("c")]})
    answer = alter_user_scram_credentials.error(message, 0, ErrorCode.NOT_CONTROLLER, None)
    codec.encode_response(51, 0, 1, answer)
    assert [(r["user"], r["error_code"]) for r in answer["results"]] == [(user, 41) for user in "abc"]


async def test_nothing_to_alter_is_no_fault_and_any_broker_describes() -> None:
    broker = await services()
    assert await alter(broker) == {}
    assert await notified(broker) == []
    assert await describe(await services(active=False)) == []


async def test_describing_needs_describe_on_the_cluster() -> None:
    assert await describe(await services(rights=Only(Operation.DESCRIBE))) == []
    with pytest.raises(ApiError) as refused:
        await describe(await services(rights=Only(Operation.ALTER)), "a")
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    _, message = request(50, {"users": None})
    codec.encode_response(
        50, 0, 1, describe_user_scram_credentials.error(message, 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    )
