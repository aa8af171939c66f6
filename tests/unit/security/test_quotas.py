"""Which quota holds, who shares it, and what costs nothing where there is none (KIP-55, 124, 599; facts §18)."""

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import CorruptData
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from logyard.broker.security import quota_settings
from logyard.broker.security.quotas import METERS_SWEPT_AT, QuotaKey, Quotas, Windows, holding_quota
from logyard.broker.znodes import configs

PRODUCE = "producer_byte_rate"


class World:
    """Quotas over a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.configs = DynamicConfigs(1, lambda overrides: TopicConfig())
        self.quotas = Quotas(self.configs, Windows(), Windows(), lambda: self.now_ms)


@pytest.fixture
def world() -> World:
    return World()


def test_the_most_specific_quota_wins_and_says_who_shares_it(world: World) -> None:
    order = [
        (("u", "c"), ("u", "c")),
        (("u", DEFAULT_ENTITY), ("u", "c")),
        (("u", None), ("u", "")),
        ((DEFAULT_ENTITY, "c"), ("u", "c")),
        ((DEFAULT_ENTITY, DEFAULT_ENTITY), ("u", "c")),
        ((DEFAULT_ENTITY, None), ("u", "")),
        ((None, "c"), ("", "c")),
        ((None, DEFAULT_ENTITY), ("", "c")),
    ]
    assert holding_quota(world.configs, "u", "c", PRODUCE) is None
    for rank, ((user, client), shared) in reversed(list(enumerate(order))):
        world.configs.set_quota(user, client, {PRODUCE: str(rank)})
        assert holding_quota(world.configs, "u", "c", PRODUCE) == (shared, rank)
    assert holding_quota(world.configs, "u", "c", "consumer_byte_rate") is None


def test_kinds_come_and_go_with_their_quotas(world: World) -> None:
    quotas = world.quotas
    assert (quotas.produce, quotas.fetch, quotas.request, quotas.mutation) == (None, None, None, None)
    world.configs.set_quota("u", None, {PRODUCE: "100"})
    before = quotas.produce
    assert before is not None
    assert quotas.fetch is None
    world.configs.set_quota("v", None, {PRODUCE: "7", "consumer_byte_rate": "7"})
    assert quotas.produce is before, "what was counted is kept"
    assert quotas.fetch is not None
    world.configs.set_quota("u", None, {})
    world.configs.set_quota("v", None, {"controller_mutation_rate": "1"})
    assert (quotas.produce, quotas.fetch) == (None, None)
    assert quotas.mutation is not None


def test_a_user_s_clients_share_and_others_are_free(world: World) -> None:
    world.configs.set_quota("u", None, {PRODUCE: "100"})
    produce = world.quotas.produce
    assert produce is not None
    assert produce.record("u", "one", 1000) == 0
    assert produce.record("u", "two", 500) == 5000
    assert produce.record("v", "two", 10**9) == 0
    assert produce.largest("u", "three") == 1000
    assert produce.largest("v", "three") == float("inf")
    world.configs.set_quota("u", None, {PRODUCE: "1000"})
    assert produce.record("u", "two", 500) == 0, "a changed bound holds at once"


def test_a_negative_quota_throttles_nobody(world: World) -> None:
    """A tool that writes znodes may have stored it. Kafka computes a negative wait from it."""
    world.configs.set_quota("u", None, dict.fromkeys(map(str, QuotaKey), "-1"))
    produce, fetch, time = world.quotas.produce, world.quotas.fetch, world.quotas.request
    mutation = world.quotas.mutation
    assert produce is not None
    assert fetch is not None
    assert time is not None
    assert mutation is not None
    assert [quota.record("u", "c", 1000) for quota in (produce, fetch, time)] == [0, 0, 0]
    mutation.take("u", "c", 1000)
    assert mutation.overdrawn_ms("u", "c") == 0
    assert fetch.largest("u", "c") == float("inf")


def test_each_client_of_a_default_has_a_meter_of_its_own(world: World) -> None:
    world.configs.set_quota(None, DEFAULT_ENTITY, {"consumer_byte_rate": "100"})
    fetch = world.quotas.fetch
    assert fetch is not None
    assert fetch.record("u", "one", 1500) == 5000
    assert fetch.record("u", "two", 900) == 0
    fetch.take_back("u", "one", 1500)
    assert fetch.record("u", "one", 1000) == 0


def test_time_is_paid_off_within_one_window(world: World) -> None:
    world.configs.set_quota(DEFAULT_ENTITY, None, {"request_percentage": "1"})
    request = world.quotas.request
    assert request is not None
    assert request.record("u", "c", 11) == 1000 * 1
    world.now_ms = 60_000
    assert request.record("u", "c", 10.5) == 500


def test_mutations_are_refused_only_once_the_bucket_is_overdrawn(world: World) -> None:
    world.configs.set_quota(None, "c", {"controller_mutation_rate": "1"})
    mutation = world.quotas.mutation
    assert mutation is not None
    assert mutation.overdrawn_ms("u", "c") == 0
    mutation.take("u", "c", 15)
    assert mutation.overdrawn_ms("u", "c") == 4000
    assert mutation.overdrawn_ms("u", "d") == 0
    mutation.take("u", "c", -4)
    assert mutation.overdrawn_ms("u", "c") == 0


def test_client_ids_nobody_uses_any_more_are_forgotten(world: World) -> None:
    world.configs.set_quota(None, DEFAULT_ENTITY, {PRODUCE: "100"})
    produce = world.quotas.produce
    assert produce is not None
    for n in range(METERS_SWEPT_AT):
        produce.record("u", f"c{n}", 1)
    world.now_ms = 20_000
    produce.record("u", "new", 1)
    assert produce.meter_count == 1


@pytest.mark.parametrize(
    ("kind", "name", "entity"),
    [
        ("users", "<default>", (DEFAULT_ENTITY, None)),
        ("users", "CN%3Da%2COU%3Db", ("CN=a,OU=b", None)),
        ("users", "u/clients/<default>", ("u", DEFAULT_ENTITY)),
        ("users", "<default>/clients/a%2Fb", (DEFAULT_ENTITY, "a/b")),
        ("clients", "<default>", (None, DEFAULT_ENTITY)),
        ("clients", "my%20app", (None, "my app")),
    ],
)
def test_entities_of_the_znodes(kind: str, name: str, entity: tuple[str | None, str | None]) -> None:
    assert quota_settings.entity_of(kind, name) == entity
    user, client = (None if one is None else one if one == "<default>" else configs.sanitize(one) for one in entity)
    assert quota_settings.path_of(user, client) == (kind, name)


def test_settings_of_znodes_become_quotas_and_bad_ones_are_refused(world: World) -> None:
    quota_settings.changed(world.configs, "users", "u/clients/c", {PRODUCE: "5", "SCRAM-SHA-256": "salt=…"})
    assert world.configs.quotas() == {("u", "c"): {PRODUCE: "5"}}
    quota_settings.changed(world.configs, "ips", "10.0.0.1", {"connection_creation_rate": "3"})
    assert world.configs.ip_quotas() == {"10.0.0.1": {"connection_creation_rate": "3"}}
    with pytest.raises(CorruptData, match=r"users/u: producer_byte_rate=fast is not a number"):
        quota_settings.changed(world.configs, "users", "u", {PRODUCE: "fast"})
    assert holding_quota(world.configs, "u", "c", QuotaKey.PRODUCE) == (("u", "c"), 5)
