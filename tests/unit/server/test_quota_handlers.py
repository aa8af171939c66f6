"""Client quotas over the wire: altered into znodes, described out of them, and the quota of partitions created."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.config.topic import TopicConfig
from logyard.broker.controller.events import CreatedTopic, CreatePartitions, CreateTopics, DeleteTopics, Outcome
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from logyard.broker.protocol import codec
from logyard.broker.security import quota_settings
from logyard.broker.security.quotas import Quotas, Windows
from logyard.broker.server.handlers import (
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
)
from logyard.broker.server.request import Fields, Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import configs as config_znodes
from logyard.broker.znodes.ops import Create
from tests.support.longest_turn import longest_turn

EXACT, DEFAULT, ANY = range(3)


async def services() -> Services:
    zk = MemoryZooKeeper(ZooKeeperTree(ManualClock(5_000)))
    for path in ("/config", "/config/users", "/config/clients", "/config/ips", "/config/changes"):
        await zk.multi([Create(path)])
    return cast(Services, SimpleNamespace(zk=zk, turns=Turns()))


def request(api_key: int, version: int, fields: Fields, client_id: str = "c") -> tuple[Request, Any]:
    frame = memoryview(bytearray(codec.encode_request(api_key, version, 1, client_id, fields)))[4:]
    body = frame[10 + len(client_id) + codec.is_flexible(api_key, version) :]
    asked = Request(api_key, version, 1, client_id, body, Session(1, "PLAINTEXT", "127.0.0.1"))
    return asked, codec.decode_request(api_key, version, body)


def entity(**names: str | None) -> list[dict[str, Any]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]


async def alter(
    broker: Services, names: list[dict[str, Any]], validate_only: bool = False, **quotas: float | None
) -> tuple[int, str | None]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    fields = {"entries": [{"entity": names, "ops": ops}], "validate_only": validate_only}
    answer = await alter_client_quotas.handle(broker, *request(49, 1, fields))
    codec.encode_response(49, 1, 1, answer)
    (entry,) = answer["entries"]
    assert entry["entity"] == names
    return entry["error_code"], entry["error_message"]


async def describe(broker: Services, *components: tuple[str, int, str | None], strict: bool = False) -> dict[Any, Any]:
    wanted = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    answer = await describe_client_quotas.handle(broker, *request(48, 1, {"components": wanted, "strict": strict}))
    codec.encode_response(48, 1, 1, answer)
    return {
        tuple((e["entity_type"], e["entity_name"]) for e in entry["entity"]): {
            v["key"]: v["value"] for v in entry["values"]
        }
        for entry in answer["entries"]
    }


async def test_names_that_need_encoding_are_those_of_kafka() -> None:
    broker = await services()
    for name, znode in (("a b*~", "a%20b%2A%7E"), ("CN=x,OU=\u00e9", "CN%3Dx%2COU%3D%C3%A9"), ("+", "%2B")):
        assert await alter(broker, entity(user=name), producer_byte_rate=1.0) == (0, None)
        assert (await broker.zk.read([f"/config/users/{znode}"]))[0] is not None
        assert await describe(broker, ("user", EXACT, name)) == {(("user", name),): {"producer_byte_rate": 1.0}}


async def test_a_user_who_is_called_as_the_default_is_not_the_default() -> None:
    broker = await services()
    assert await alter(broker, entity(user="<default>"), producer_byte_rate=1.0) == (0, None)
    assert (await broker.zk.read(["/config/users/<default>"]))[0] is None
    assert await describe(broker, ("user", DEFAULT, None)) == {}
    await alter(broker, entity(user=None), producer_byte_rate=2.0)
    assert await describe(broker, ("user", EXACT, "<default>")) == {}
    known = DynamicConfigs(1, lambda overrides: TopicConfig())
    quota_settings.changed(known, config_znodes.USERS, "%3Cdefault%3E", {"producer_byte_rate": "1"})
    assert (DEFAULT_ENTITY, None) not in known.quotas()


async def test_what_is_altered_is_described() -> None:
    broker = await services()
    assert await alter(broker, entity(user="a b"), producer_byte_rate=1000.0, request_percentage=12.5) == (0, None)
    assert await alter(broker, entity(user="a b", client_id="x/y"), consumer_byte_rate=5.0) == (0, None)
    assert await alter(broker, entity(user=None), controller_mutation_rate=0.5) == (0, None)
    assert await alter(broker, entity(client_id=None), consumer_byte_rate=7.0) == (0, None)
    assert await alter(broker, entity(ip="::1"), connection_creation_rate=3.0) == (0, None)
    paths = ["/config/users/a%20b", "/config/users/a%20b/clients/x%2Fy", "/config/ips/%3A%3A1"]
    found = [config_znodes.decode(z.data) for z in await broker.zk.read(paths) if z is not None]
    assert found == [
        {"producer_byte_rate": "1000", "request_percentage": "12.5"},
        {"consumer_byte_rate": "5"},
        {"connection_creation_rate": "3"},
    ]
    (changes,) = await broker.zk.children(["/config/changes"])
    assert len(changes or ()) == 5, "every change is told to every broker"
    assert await describe(broker) == {
        (("user", "a b"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        (("user", "a b"), ("client-id", "x/y")): {"consumer_byte_rate": 5.0},
        (("user", None),): {"controller_mutation_rate": 0.5},
        (("client-id", None),): {"consumer_byte_rate": 7.0},
        (("ip", "::1"),): {"connection_creation_rate": 3.0},
    }
    assert await alter(broker, entity(user="a b"), producer_byte_rate=None, consumer_byte_rate=None) == (0, None)
    assert (await describe(broker))[(("user", "a b"),)] == {"request_percentage": 12.5}


async def test_the_largest_quotas_are_numbers_that_kafkas_brokers_can_hold() -> None:
    """The largest long of Java's clients arrives as the double next to it, which is one more."""
    broker = await services()
    assert await alter(broker, entity(user="u"), producer_byte_rate=2.0**63) == (0, None)
    assert await alter(broker, entity(ip="10.0.0.1"), connection_creation_rate=2.0**31 - 1) == (0, None)
    found = await broker.zk.read(["/config/users/u", "/config/ips/10.0.0.1"])
    assert [config_znodes.decode(z.data) for z in found if z is not None] == [
        {"producer_byte_rate": str(2**63 - 1)},
        {"connection_creation_rate": str(2**31 - 1)},
    ]


async def test_who_has_no_settings_left_has_no_znode() -> None:
    broker = await services()

    async def below(path: str) -> list[str] | None:
        (found,) = await broker.zk.children([path])
        return found

    async def told() -> int:
        return len(await below("/config/changes") or ())

    client = entity(user="u", client_id="c")
    for names in (entity(user="u"), client, entity(user="u", client_id="d"), entity(client_id="c")):
        assert await alter(broker, names, producer_byte_rate=1.0) == (0, None)
    assert await alter(broker, entity(ip="::1"), connection_creation_rate=1.0) == (0, None)
    before = await told()
    await alter(broker, entity(user="u"), producer_byte_rate=None)  # clients are below it
    assert config_znodes.decode((await broker.zk.read(["/config/users/u"]))[0].data) == {}  # type: ignore[union-attr]
    await alter(broker, client, producer_byte_rate=None)
    assert await below("/config/users/u/clients") == ["d"]
    await alter(broker, entity(user="u", client_id="d"), producer_byte_rate=None)
    await alter(broker, entity(client_id="c"), producer_byte_rate=None)
    await alter(broker, entity(ip="::1"), connection_creation_rate=None)
    assert [await below(f"/config/{kind}") for kind in ("users", "clients", "ips")] == [[], [], []]
    assert await told() == before + 5
    await alter(broker, entity(user="nobody"), producer_byte_rate=None)
    assert await below("/config/users") == []
    await alter(broker, entity(user="u"), producer_byte_rate=2.0)
    await alter(broker, client, producer_byte_rate=1.0)
    await alter(broker, client, producer_byte_rate=None)
    assert await below("/config/users/u") == [], "the user has settings of its own"


async def test_filters() -> None:
    broker = await services()
    for names in (
        entity(user="u"),
        entity(user=None),
        entity(user="u", client_id="c"),
        entity(user="u", client_id=None),
        entity(client_id="c"),
    ):
        await alter(broker, names, producer_byte_rate=1.0)
    u, c = ("user", "u"), ("client-id", "c")
    assert set(await describe(broker, ("user", EXACT, "u"))) == {(u,), (u, c), (u, ("client-id", None))}
    assert set(await describe(broker, ("user", EXACT, "u"), strict=True)) == {(u,)}
    assert set(await describe(broker, ("user", DEFAULT, None))) == {(("user", None),)}
    assert set(await describe(broker, ("user", ANY, None), strict=True)) == {(u,), (("user", None),)}
    both = (("user", ANY, None), ("client-id", EXACT, "c"))
    assert set(await describe(broker, *both)) == {(u, c)}
    assert set(await describe(broker, ("client-id", EXACT, "c"))) == {(c,), (u, c)}
    assert await describe(broker, ("ip", ANY, None)) == {}
    assert await describe(broker, strict=True) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([("", ANY, None), ("user", EXACT, None)], ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_filters_that_are_refused(components: list[Any], code: ErrorCode) -> None:
    broker = await services()
    with pytest.raises(ApiError) as refusal:
        await describe(broker, *components)
    assert refusal.value.code is code


async def test_alterations_that_are_refused_change_nothing() -> None:
    broker = await services()
    invalid = int(ErrorCode.INVALID_REQUEST)
    for names, quotas in (
        (entity(user="u"), {"no_such_rate": 1.0}),
        (entity(user="u"), {"connection_creation_rate": 1.0}),
        (entity(ip="10.0.0.1"), {"producer_byte_rate": 1.0}),
        (entity(ip="no address"), {"connection_creation_rate": 1.0}),
        (entity(ip="no-host.invalid"), {"connection_creation_rate": 1.0}),
        (entity(ip="10.0.0.1", user="u"), {"connection_creation_rate": 1.0}),
        (entity(user="u"), {"producer_byte_rate": 1.5}),
        (entity(user="u"), {"producer_byte_rate": float("nan")}),
        (entity(user="u"), {"producer_byte_rate": 1e300}),
        (entity(ip="10.0.0.1"), {"connection_creation_rate": 2.0**31}),
        (entity(user="u"), {"request_percentage": float("inf")}),
        (entity(ip="10.0.0.1"), {"connection_creation_rate": -1.0}),
        (entity(user=""), {"producer_byte_rate": 1.0}),
        (entity(group="g"), {"producer_byte_rate": 1.0}),
        ([], {"producer_byte_rate": 1.0}),
    ):
        assert (await alter(broker, names, False, **quotas))[0] == invalid, (names, quotas)
    assert await alter(broker, entity(user="u"), validate_only=True, producer_byte_rate=1.0) == (0, None)
    assert await describe(broker) == {}


async def test_of_a_type_that_is_named_twice_the_last_name_counts() -> None:
    broker = await services()
    ops = [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]
    asked = {"entries": [{"entity": entity(user="a") + entity(user="b"), "ops": ops}], "validate_only": False}
    answer = await alter_client_quotas.handle(broker, *request(49, 1, asked))
    assert answer["entries"] == [{"error_code": 0, "error_message": None, "entity": entity(user="b")}]
    assert await describe(broker) == {(("user", "b"),): {"producer_byte_rate": 1.0}}


async def test_a_host_may_be_called_by_its_name() -> None:
    broker = await services()
    assert await alter(broker, entity(ip="localhost"), connection_creation_rate=1.0) == (0, None)
    assert await describe(broker) == {(("ip", "localhost"),): {"connection_creation_rate": 1.0}}


async def test_what_need_not_be_whole_may_be_negative() -> None:
    """Kafka takes it, as it does not look at the sign."""
    broker = await services()
    asked = {"request_percentage": -0.5, "controller_mutation_rate": -1.0}
    assert await alter(broker, entity(user="u"), False, **asked) == (0, None)
    assert await describe(broker) == {(("user", "u"),): asked}
    assert (await alter(broker, entity(user="u"), producer_byte_rate=-1.0))[0] == int(ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("names", [entity(ip="é" * 16_000), entity(user="twice") + entity(user="é" * 16_000)])
async def test_long_names_of_entities_are_looked_at_in_turns(names: list[dict[str, Any]]) -> None:
    """To encode one takes a millisecond."""
    broker = await services()
    asked = request(49, 1, {"entries": [{"entity": names, "ops": []}] * 95, "validate_only": False})
    async with longest_turn() as longest:
        answer = await alter_client_quotas.handle(broker, *asked)
    assert {entry["error_code"] for entry in answer["entries"]} == {int(ErrorCode.INVALID_REQUEST)}
    assert longest.seconds < 0.05


class Controller:
    """Does what it is asked, but for topics that have bad in their name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def _outcome(self, name: str) -> ErrorCode:
        self.asked.append(name)
        return ErrorCode.POLICY_VIOLATION if "bad" in name else ErrorCode.NONE

    async def ask(self, asked: CreateTopics | DeleteTopics | CreatePartitions) -> Any:
        match asked:
            case CreateTopics():
                return [
                    CreatedTopic(t.name, self._outcome(t.name), num_partitions=t.num_partitions) for t in asked.topics
                ]
            case DeleteTopics():
                return {name: Outcome(self._outcome(name)) for name in asked.topics}
            case CreatePartitions():
                return {new.topic: Outcome(self._outcome(new.topic)) for new in asked.topics}


class Metadata:
    """Every topic has four partitions; all exist but those that begin with new."""

    def partitions(self, topic: str) -> dict[int, Any]:
        return dict.fromkeys(range(4), SimpleNamespace(leader=1))

    def is_alive(self, broker: int) -> bool:
        return True

    def topic_id(self, topic: str) -> None:
        return None

    def __contains__(self, topic: str) -> bool:
        return not topic.startswith("new")


class Waits:
    async def until(self, condition: Any, timeout_ms: int) -> bool:
        return bool(condition())


def mutating(rate: str) -> tuple[Services, Controller]:
    """Services whose clients may touch that many partitions a second, and eleven times as many at once."""
    configs = DynamicConfigs(1, lambda overrides: TopicConfig())
    configs.set_quota(None, DEFAULT_ENTITY, {"controller_mutation_rate": rate})
    quotas = Quotas(configs, Windows(), Windows(), lambda: 0.0)
    controller = Controller()
    made = SimpleNamespace(
        turns=Turns(),
        quotas=quotas,
        controller=controller,
        metadata=Metadata(),
        topic_waits=Waits(),
        rights=EverythingAllowed(),
        config=SimpleNamespace(int=lambda key: 1, describe_topic=lambda overrides: []),
    )
    return cast(Services, made), controller


async def create(broker: Services, version: int, *names: str, validate_only: bool = False) -> tuple[list[int], int]:
    topics: list[dict[str, Any]] = [
        {
            "name": n,
            "num_partitions": 1_000_000 if n.endswith("huge") else 4,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for n in names
    ]
    fields = {"topics": topics, "timeout_ms": 1000, "validate_only": validate_only}
    answer = await create_topics.handle(broker, *request(19, version, fields))
    codes = {t["name"]: t["error_code"] for t in answer["topics"]}
    return [codes[name] for name in names], answer["throttle_time_ms"]


async def test_partitions_over_the_quota_are_refused_to_clients_that_know_the_error() -> None:
    broker, controller = mutating("1")
    assert await create(broker, 7, "new a", "new b", "new c", "new d") == ([0, 0, 0, 89], 1000)
    assert controller.asked == ["new a", "new b", "new c"], (
        "twelve partitions overdraw eleven tokens by one: the fourth has to wait"
    )
    assert await create(broker, 7, "new e", validate_only=True) == ([0], 0)


async def test_older_clients_are_served_and_held_back() -> None:
    broker, controller = mutating("1")
    names = ["new a", "new b", "new c", "new d"]
    assert await create(broker, 5, *names) == ([0, 0, 0, 0], 5000)
    assert controller.asked == names


async def test_what_is_not_created_costs_nothing() -> None:
    broker, _ = mutating("1")
    for _n in range(5):
        assert await create(broker, 7, "new bad1", "new bad2") == ([44, 44], 0)
    assert await create(broker, 7, "new a", "new b", "new c") == ([0, 0, 0], 0)


async def test_nobody_is_held_back_for_what_was_refused() -> None:
    """Who asked for topics that exist was muted for the time that they would have cost."""
    broker, _ = mutating("1")
    refused = [f"new bad{n}" for n in range(5)]
    assert await create(broker, 5, *refused) == ([44] * 5, 0)
    existing = [f"bad{n}" for n in range(5)]
    assert await create(broker, 7, *existing, "bad huge", "new bad huge", "new a") == ([44] * 7 + [0], 0)
    more = [{"name": n, "count": c, "assignments": None} for n, c in (("new bad", 99), ("bad", 1_000_000), ("a", 16))]
    fields = {"topics": more, "timeout_ms": 0, "validate_only": False}
    answer = await create_partitions.handle(mutating("1")[0], *request(37, 3, fields))
    assert [r["error_code"] for r in answer["results"]] == [44, 44, 7]


async def test_deleted_and_added_partitions_count_too() -> None:
    broker, controller = mutating("1")
    names = ["a", "b", "c", "d"]
    fields: Fields = {"topics": [{"name": n} for n in names], "timeout_ms": 0}
    answer = await delete_topics.handle(broker, *request(20, 6, fields))
    assert [(r["name"], r["error_code"]) for r in answer["responses"]] == [("a", 7), ("b", 7), ("c", 7), ("d", 89)]
    assert answer["throttle_time_ms"] == 1000
    broker, controller = mutating("1")
    more = [{"name": n, "count": 16, "assignments": None} for n in ("a", "b")]
    fields = {"topics": more, "timeout_ms": 0, "validate_only": False}
    answer = await create_partitions.handle(broker, *request(37, 3, fields))
    assert [(r["name"], r["error_code"]) for r in answer["results"]] == [("a", 7), ("b", 89)]
    assert controller.asked == ["a"]
