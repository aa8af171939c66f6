"""The controller is told that a broker's log directories have changed, whatever ZooKeeper says at first."""

import asyncio

import pytest

from logyard.broker import tasks
from logyard.broker.clock import ManualClock
from logyard.broker.zk.log_dir_news import LogDirNews
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import log_dir_events
from logyard.broker.znodes.ops import Delete
from tests.support.virtual_loop import run_virtually


def told(tree: ZooKeeperTree) -> list[int]:
    names = tree.children(log_dir_events.PATH) or []
    found = [tree.read(log_dir_events.path(name)) for name in names]
    return [log_dir_events.decode(znode.data) for znode in found if znode is not None]


def test_what_is_told_twice_at_once_is_written_once() -> None:
    async def history() -> None:
        tree = ZooKeeperTree(ManualClock())
        zk = MemoryZooKeeper(tree)
        await create_persistent_paths(zk)
        news = LogDirNews(zk, 3)
        news.tell()
        news.tell()
        await asyncio.sleep(1.0)
        assert told(tree) == [3]
        news.tell()
        await asyncio.sleep(1.0)
        assert told(tree) == [3, 3]

    run_virtually(history())


def test_what_zookeeper_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written once, and taken for done: the controller never heard of the directory."""
    failed: list[str] = []
    monkeypatch.setattr(tasks, "failed", lambda name, error, again_in_s=None: failed.append(str(error)))

    async def history() -> None:
        tree = ZooKeeperTree(ManualClock())
        zk = MemoryZooKeeper(tree)
        await create_persistent_paths(zk)
        await zk.multi([Delete(log_dir_events.PATH)])
        news = LogDirNews(zk, 3)
        news.tell()
        await asyncio.sleep(3.0)
        assert failed
        assert "no node" in failed[0]
        await create_persistent_paths(zk)
        await asyncio.sleep(3.0)
        assert told(tree) == [3]

    run_virtually(history())


def test_a_session_that_ended_needs_no_news() -> None:
    """The next one registers the broker anew, and the controller sends it everything."""

    async def history() -> None:
        tree = ZooKeeperTree(ManualClock())
        zk = MemoryZooKeeper(tree)
        await create_persistent_paths(zk)
        news = LogDirNews(zk, 3)
        tree.expire(zk.session_id)
        news.tell()
        await asyncio.sleep(3.0)
        assert told(tree) == []
        news.close()

    run_virtually(history())
