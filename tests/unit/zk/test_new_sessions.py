"""A new session of the broker, in which ZooKeeper refuses one thing or another for a while."""

import asyncio
from collections.abc import Callable

import pytest

from logyard.broker import tasks
from logyard.broker.clock import ManualClock
from logyard.broker.errors import LogyardError
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.new_sessions import NewSessions
from logyard.broker.zk.registration import BrokerIdTaken
from logyard.broker.zk.session_watches import SessionWatch, SessionWatches
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import SessionExpired


class Unexpected(Exception):
    """What nobody catches by name."""


class Refused(SessionWatch):
    """A watch that cannot be set the next `times` times."""

    def __init__(self, zk: MemoryZooKeeper) -> None:
        super().__init__(zk)
        self.times = self.loads = 0
        self.error: Exception = LogyardError("ZooKeeper refuses a read")

    async def _load(self, dirty: asyncio.Event) -> None:
        if self.times:
            self.times -= 1
            raise self.error
        self.loads += 1

    _look_again = _load


class World:
    """A broker's session, with two watches; `world.done` lists what was done in the new session."""

    def __init__(self) -> None:
        self.tree = ZooKeeperTree(ManualClock())
        self.zk = MemoryZooKeeper(self.tree)
        self.first, self.second = Refused(self.zk), Refused(self.zk)
        self.watches = SessionWatches(self.first, self.second)
        self.refusals: list[Exception] = []
        self.done: list[str] = []
        self.sessions = NewSessions(self._register, self.watches, lambda: self.done.append("stand"), self.done.append)
        self.zk.on_session_established = self.sessions.take

    async def _register(self) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.done.append("register")

    def expire(self) -> None:
        self.tree.expire(self.zk.session_id)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(tasks, "PAUSE_S", 0.01)
    made = World()
    await made.watches.start()
    return made


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not reached():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("error", [Unexpected(), LogyardError("ZooKeeper refuses a write")])
async def test_a_registration_that_is_refused_is_tried_again(world: World, error: Exception) -> None:
    world.refusals = [error]
    world.expire()
    await until(lambda: "stand" in world.done)
    assert world.done == ["register", "stand"]
    assert (world.first.loads, world.second.loads) == (2, 2)


@pytest.mark.parametrize("error", [Unexpected(), LogyardError("ZooKeeper refuses a read")])
async def test_a_refused_watch_keeps_the_broker_from_nothing_else(world: World, error: Exception) -> None:
    """If no broker may read one of them, one of the brokers has to be controller all the same, as with Kafka."""
    world.first.times, world.first.error = 1 << 30, error
    world.expire()
    await until(lambda: world.first.times < (1 << 30) - 3)
    assert world.done == ["register", "stand"], "once, however often the watch is tried"
    assert world.second.loads == 2, "in this session, once"
    world.first.times = 0
    await until(lambda: world.first.loads == 2)
    await asyncio.sleep(0.05)
    assert (world.first.loads, world.second.loads) == (2, 2)
    assert world.done == ["register", "stand"]


async def test_a_session_that_ends_at_once_is_given_up_for_the_next_one(world: World) -> None:
    world.refusals = [SessionExpired("over")]
    world.expire()
    await until(lambda: not world.refusals)
    await asyncio.sleep(0.05)
    assert world.done == []
    world.expire()
    await until(lambda: "stand" in world.done)
    assert world.done == ["register", "stand"]


async def test_a_broker_whose_id_is_taken_stops(world: World) -> None:
    world.refusals = [BrokerIdTaken("broker id 1 is registered already")]
    world.expire()
    await until(lambda: world.done)
    assert world.done == ["broker id 1 is registered already"]
