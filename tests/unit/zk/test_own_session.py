"""ACLs in another ZooKeeper than the broker's: their session begins, ends and begins again by itself (facts §18.4)."""

import asyncio

import pytest

from logyard.broker.broker import acl_zookeeper
from logyard.broker.clock import ManualClock
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.security.acls.rules import Acls
from logyard.broker.security.acls.store import AclStore
from logyard.broker.server.authorizer import Authorization, authorization_from
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.session import ZooKeeperUnavailable
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.acls import AclEntry, Operation, Permission, ResourcePattern, ResourceType

BASE = "broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181\n"
RIGHTS = f"{BASE}authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
READ, WRITE = (AclEntry("User:a", Permission.ALLOW, each) for each in (Operation.READ, Operation.WRITE))


class World:
    """The broker's ZooKeeper, that of the ACLs, and what the broker makes of both."""

    def __init__(self) -> None:
        clock = ManualClock(5_000)
        self.own, self.of_acls = ZooKeeperTree(clock), ZooKeeperTree(clock)
        self.session = MemoryZooKeeper(self.of_acls)
        self.made: Authorization = authorization_from(
            BrokerConfig.parse(RIGHTS), MemoryZooKeeper(self.own), lambda bound: 0, lambda: self.session
        )
        (self.watch,) = self.made.watches

    async def other_broker(self) -> AclStore:
        store = AclStore(MemoryZooKeeper(self.of_acls), Acls(), pytest.fail, lambda bound: 0)
        await store.create_paths()
        return store

    async def obeys(self, *entries: AclEntry) -> None:
        assert self.made.acls is not None
        async with asyncio.timeout(5):
            while self.made.acls.known.entries(TOPIC) != frozenset(entries):
                await asyncio.sleep(0.001)


async def test_acls_are_read_and_written_there() -> None:
    world = World()
    other = await world.other_broker()
    await other.create(TOPIC, [READ])
    await world.watch.start()
    await world.obeys(READ)
    assert world.made.acls is not None
    await world.made.acls.create(TOPIC, [WRITE])
    assert world.of_acls.read("/kafka-acl/Topic/t") is not None
    assert world.own.read("/kafka-acl") is None
    await world.watch.stop()
    assert not world.session.is_alive


async def test_a_new_session_of_the_broker_changes_nothing_and_one_of_its_own_loads_again() -> None:
    world = World()
    other = await world.other_broker()
    await world.watch.start()
    world.of_acls.expire(world.session.session_id)
    await other.create(TOPIC, [READ])  # nobody tells this broker of it
    await world.watch.start()  # the broker's session is new, too: that must not fail
    await world.watch.renew()
    await world.obeys(READ)
    await other.create(TOPIC, [WRITE])
    await world.obeys(READ, WRITE)
    await world.watch.stop()


@pytest.mark.parametrize(
    ("given", "opens"),
    [
        (BASE + "authorizer.zookeeper.url=other:2181\n", False),  # no authorizer
        (RIGHTS, False),
        (RIGHTS + "authorizer.zookeeper.url=other:2181/acls\n", True),
        (RIGHTS + "authorizer.zookeeper.session.timeout.ms=9000\n", True),
        (RIGHTS + "authorizer.zookeeper.ssl.client.enable=false\n", True),
    ],
)
def test_a_session_of_its_own_is_opened_if_a_setting_asks_for_it(given: str, opens: bool) -> None:
    assert (acl_zookeeper(BrokerConfig.parse(given)) is not None) == opens


async def test_its_settings_are_its_own_or_the_brokers() -> None:
    keys = "authorizer.zookeeper.url=127.0.0.1:1\nauthorizer.zookeeper.connection.timeout.ms=50\n"
    config = BrokerConfig.parse(RIGHTS + keys)
    own = MemoryZooKeeper(ZooKeeperTree(ManualClock(0)))
    made = authorization_from(config, own, lambda bound: 0, acl_zookeeper(config))
    with pytest.raises(ZooKeeperUnavailable, match=r"127\.0\.0\.1:1 does not answer within 0\.05 s"):
        await made.watches[0].start()
    await made.watches[0].stop()
