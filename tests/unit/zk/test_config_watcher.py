"""Dynamic configuration: everything once, then what is notified, old notifications removed."""

import asyncio

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import LogyardError
from logyard.broker.zk.config_watcher import ConfigWatcher
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.ops import Create, Delete, SetData
from tests.support.guarded_zookeeper import GuardedZooKeeper
from tests.support.longest_turn import longest_turn_uncollected


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tree = ZooKeeperTree(self.clock)
        self.zk = MemoryZooKeeper(self.tree)
        self.admin = MemoryZooKeeper(self.tree)
        self.told: asyncio.Queue[tuple[str, str, dict[str, str]]] = asyncio.Queue()
        self.notes: list[str] = []
        self.watcher = ConfigWatcher(self.zk, lambda *c: self.told.put_nowait(c), self.notes.append)

    async def notify(self, kind: str, name: str) -> None:
        await self.raw_notify(config_changes.encode(kind, name))

    async def raw_notify(self, data: bytes) -> None:
        await self.admin.multi([Create(config_changes.SEQUENCE_PREFIX, data, sequential=True)])

    def all_told(self) -> list[tuple[str, str, dict[str, str]]]:
        return [self.told.get_nowait() for _ in range(self.told.qsize())]


@pytest.fixture
async def world() -> World:
    world = World()
    await create_persistent_paths(world.admin)
    return world


async def test_everything_is_loaded_once(world: World) -> None:
    await world.admin.multi(
        [
            Create("/config/topics/t", configs.encode({"retention.ms": "1"})),
            Create("/config/users/u", b""),
            Create("/config/users/u/clients", b""),
            Create("/config/users/u/clients/c", configs.encode({"producer_byte_rate": "5"})),
            Create("/config/brokers/<default>", configs.encode({"a": "b"})),
            Create("/config/topics/bad", b"{"),
        ]
    )
    await world.notify("topics", "t")
    await world.watcher.start()
    assert sorted(world.all_told()) == [
        ("brokers", "<default>", {"a": "b"}),
        ("topics", "t", {"retention.ms": "1"}),
        ("users", "u", {}),
        ("users", "u/clients/c", {"producer_byte_rate": "5"}),
    ]
    assert len(world.notes) == 1
    assert "/config/topics/bad" in world.notes[0]
    await world.watcher.stop()


async def test_a_notification_makes_the_entity_read_again(world: World) -> None:
    await world.watcher.start()
    await world.admin.multi([Create("/config/topics/t", configs.encode({"a": "1"}))])
    await world.raw_notify(b"nonsense")
    await world.notify("topics", "t")
    assert await world.told.get() == ("topics", "t", {"a": "1"})
    await world.admin.multi([SetData("/config/topics/t", configs.encode({"a": "2"}))])
    await world.raw_notify(b'{"version":1,"entity_type":"topics","entity_name":"t"}')
    assert await world.told.get() == ("topics", "t", {"a": "2"})
    await world.admin.multi([Delete("/config/topics/t")])
    await world.notify("topics", "t")
    assert await world.told.get() == ("topics", "t", {})
    assert world.notes
    await world.watcher.stop()


async def test_settings_that_may_not_be_read_are_kept_and_cost_no_others(world: World) -> None:
    zk = GuardedZooKeeper(world.tree)
    watcher = ConfigWatcher(zk, lambda *c: world.told.put_nowait(c), world.notes.append)
    await world.admin.multi([Create(configs.topic_path(name), configs.encode({"a": "1"})) for name in ("t", "u")])
    await watcher.start()
    world.all_told()
    zk.refused.add(configs.topic_path("t"))
    for name in ("t", "u"):
        await world.admin.multi([SetData(configs.topic_path(name), configs.encode({"a": "2"}))])
        await world.notify("topics", name)
    async with asyncio.timeout(5):
        assert await world.told.get() == ("topics", "u", {"a": "2"})
    assert world.all_told() == []
    assert "topics/t keeps its settings" in world.notes[0]
    await watcher.stop()


async def test_a_notification_that_may_not_be_read_hides_no_other(world: World) -> None:
    zk = GuardedZooKeeper(world.tree, config_changes.path("config_change_0000000000"))
    watcher = ConfigWatcher(zk, lambda *c: world.told.put_nowait(c), world.notes.append)
    await watcher.start()
    await world.admin.multi([Create(configs.topic_path("t"), configs.encode({"a": "1"}))])
    await world.notify("topics", "u")
    await world.notify("topics", "t")
    async with asyncio.timeout(5):
        assert await world.told.get() == ("topics", "t", {"a": "1"})
    assert "config_change_0000000000" in world.notes[0]
    await watcher.stop()


async def test_the_first_load_takes_no_topic_for_one_without_settings(world: World) -> None:
    """Compacted records would be deleted by the settings of others."""
    await world.admin.multi([Create(configs.topic_path("t"), configs.encode({"cleanup.policy": "compact"}))])
    zk = GuardedZooKeeper(world.tree, configs.topic_path("t"))
    watcher = ConfigWatcher(zk, lambda *c: world.told.put_nowait(c), world.notes.append)
    with pytest.raises(LogyardError, match="/config/topics/t"):
        await watcher.start()


async def test_old_notifications_are_purged_with_a_later_one(world: World) -> None:
    await world.notify("topics", "old")
    await world.watcher.start()
    world.clock.advance(16 * 60)
    await world.notify("topics", "new")
    assert (await world.told.get())[1] == "new"
    gone = asyncio.Event()
    await world.admin.read_and_watch("/config/changes/config_change_0000000000", lambda event, path: gone.set())
    if (await world.admin.read(["/config/changes/config_change_0000000000"]))[0] is not None:
        await gone.wait()
    assert await world.admin.children([config_changes.PATH]) == [["config_change_0000000001"]]
    await world.watcher.stop()


async def test_younger_notifications_stay_for_brokers_that_have_not_seen_them(world: World) -> None:
    await world.notify("topics", "first")
    await world.watcher.start()
    world.clock.advance(14 * 60)
    await world.notify("topics", "second")
    assert (await world.told.get())[1] == "second"
    await asyncio.sleep(0.05)
    assert len((await world.admin.children([config_changes.PATH]))[0] or []) == 2
    await world.watcher.stop()


async def test_a_new_session_loads_again_and_finds_what_vanished(world: World) -> None:
    await world.admin.multi([Create("/config/topics/t", configs.encode({"a": "1"}))])
    await world.watcher.start()
    back = asyncio.Event()
    world.zk.on_session_established = lambda session_id: back.set()
    world.all_told()
    world.tree.expire(world.zk.session_id)
    await world.admin.multi([Delete("/config/topics/t")])
    await back.wait()
    await world.watcher.start()
    assert world.all_told() == [("topics", "t", {})]
    await world.notify("topics", "t")
    assert await world.told.get() == ("topics", "t", {})
    await world.watcher.stop()


async def test_a_session_that_ended_unheard_is_followed_anew(world: World) -> None:
    await world.watcher.start()
    before = world.zk.session_id
    world.tree.expire(before)
    while world.zk.session_id in (0, before):
        await asyncio.sleep(0.01)
    await world.watcher.renew()
    world.all_told()
    await world.admin.multi([Create("/config/topics/t", configs.encode({"retention.ms": "1"}))])
    await world.notify("topics", "t")
    async with asyncio.timeout(5):
        assert await world.told.get() == ("topics", "t", {"retention.ms": "1"})
    followed = [task for task in asyncio.all_tasks() if task.get_name() == "config watcher"]
    await world.watcher.renew()
    now = [task for task in asyncio.all_tasks() if task.get_name() == "config watcher"]
    assert len(now) == 1
    assert now == followed, "nothing to be done"
    await world.watcher.stop()


@pytest.mark.parametrize("is_gone_first", [True, False])
async def test_changes_are_heard_after_the_notifications_were_gone(world: World, is_gone_first: bool) -> None:
    """Who notifies creates their znode where it is missing, as Kafka does."""
    if is_gone_first:
        await world.admin.multi([Delete(config_changes.PATH)])
    await world.watcher.start()
    if not is_gone_first:
        await world.admin.multi([Delete(config_changes.PATH)])
        await asyncio.sleep(0.05)
    world.all_told()
    await world.admin.multi([Create(config_changes.PATH)])
    for value in ("1", "2"):
        path = configs.topic_path("t")
        content = configs.encode({"a": value})
        await world.admin.multi([Create(path, content) if value == "1" else SetData(path, content)])
        await world.notify("topics", "t")
        async with asyncio.timeout(5):
            assert await world.told.get() == ("topics", "t", {"a": value})
    await world.watcher.stop()


async def test_settings_of_very_many_topics_are_told_in_turns(world: World) -> None:
    """Each new session reads those of all topics; at once 20,000 take 0.1 s."""
    names = [f"t{number}" for number in range(20_000)]
    data = configs.encode({"retention.ms": "1"})
    await world.admin.multi([Create(configs.topic_path(name), data) for name in names])
    async with longest_turn_uncollected() as longest:
        await world.watcher.start()
    assert [name for _, name, _ in world.all_told()] == sorted(names)
    assert longest.seconds < 0.05
