"""Each loop, watcher and periodic task of a broker meets an exception that nobody expected, and goes on."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker import tasks
from logyard.broker.cleaner import catch_up
from logyard.broker.cleaner.settings import CleanerSettings
from logyard.broker.client.alter_partition import AlterPartitionSender
from logyard.broker.client.link import Link
from logyard.broker.client.peers import ControllerPeers
from logyard.broker.client.producer_ids import ProducerIds
from logyard.broker.clock import ManualClock
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.log.background import BackgroundWork
from logyard.broker.model import Endpoint, TopicPartition
from logyard.broker.replication.follower.fetcher import LeaderFetcher
from logyard.broker.replication.ports import IsrChangeResult
from logyard.broker.server.admission import Admission, Limits
from logyard.broker.server.listener import Listener
from logyard.broker.zk.config_watcher import ConfigWatcher
from logyard.broker.zk.isr_writer import DirectIsrWriter
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import config_changes, configs, partition_state, paths
from logyard.broker.znodes.ops import Create
from tests.support.cleaning_world import Worker, cleaner_of
from tests.support.disk_logs import stored
from tests.support.followed import Followed, answer, run
from tests.support.lease_world import LeaseWorld, fill
from tests.support.scripted_broker import ScriptedBroker
from tests.support.virtual_loop import VirtualLoop


class Unexpected(Exception):
    """What nobody thought of."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PAUSE_S", 0.01)


def fails_once(work: Callable[..., Any], error: type[Exception] = Unexpected) -> Callable[..., Any]:
    """The same work, but the first call raises."""
    calls = 0

    def call(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        return work(*args, **named)

    return call


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.002)


async def config_world() -> tuple[MemoryZooKeeper, MemoryZooKeeper, dict[str, dict[str, str]]]:
    tree = ZooKeeperTree(ManualClock())
    admin = MemoryZooKeeper(tree)
    await create_persistent_paths(admin)
    return MemoryZooKeeper(tree), admin, {}


async def tell(admin: MemoryZooKeeper, topic: str) -> None:
    await admin.multi([Create(configs.path("topics", topic), configs.encode({"retention.ms": "1"}))])
    change = config_changes.encode("topics", topic)
    await admin.multi([Create(config_changes.SEQUENCE_PREFIX, change, sequential=True)])


async def test_settings_are_followed_though_one_entity_cannot_be_taken() -> None:
    zk, admin, told = await config_world()

    def changed(kind: str, name: str, settings: dict[str, str]) -> None:
        if name.startswith("bad"):
            raise UnicodeError("label empty or too long")
        told[name] = settings

    notes: list[str] = []
    watcher = ConfigWatcher(zk, changed, notes.append)
    for topic in ("a", "bad", "z"):
        await tell(admin, topic)
    await watcher.start()  # as at every start, and in every new session
    assert told.keys() == {"a", "z"}
    assert "keeps its settings" in notes[0]
    for topic in ("bad2", "later"):
        await tell(admin, topic)
    await until(lambda: "later" in told)
    await watcher.stop()


async def test_settings_are_followed_though_a_read_failed() -> None:
    zk, admin, told = await config_world()
    watcher = ConfigWatcher(zk, lambda kind, name, settings: told.update({name: settings}), print)
    await watcher.start()
    zk.read = fails_once(zk.read)  # type: ignore[method-assign]
    await tell(admin, "t")
    await until(lambda: "t" in told)
    await watcher.stop()


@pytest.mark.parametrize("what", ["refusal", "delay_ms", "wait_for_room", "enter"])
async def test_connections_are_accepted(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = Admission(Limits(), lambda: 0.0)
    monkeypatch.setattr(doors, what, fails_once(getattr(doors, what)))
    listener = Listener(Endpoint("L", "PLAINTEXT", "127.0.0.1", 0), doors)
    await listener.serve(cast(Any, SimpleNamespace(may_pipeline=lambda key: False, has_small_answer=lambda key: False)))
    opened = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
    await until(lambda: listener.connection_count)
    if what in ("refusal", "delay_ms"):
        reader, _ = opened[0]
        async with asyncio.timeout(20):
            assert await reader.read() == b"", "closed, and not left to the garbage collector"
    for _, writer in opened:
        writer.close()
        await writer.wait_closed()
    await listener.close()


async def test_silent_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    doors = Admission(Limits(idle_ms=40), lambda: 0.0)
    listener = Listener(Endpoint("L", "PLAINTEXT", "127.0.0.1", 0), doors)
    await listener.serve(cast(Any, SimpleNamespace(may_pipeline=lambda key: False, has_small_answer=lambda key: False)))
    monkeypatch.setattr(doors, "active", fails_once(doors.active))
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()
    await listener.close()


async def test_the_controller_s_requests_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = []
    async with ScriptedBroker(lambda asked: {"error_code": 0}) as broker:
        peers = ControllerPeers("PLAINTEXT", "controller")
        peers.add_broker(broker.info)
        monkeypatch.setattr(Link, "request", fails_once(Link.request))
        fields = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1}
        peers.send(1, 5, 3, fields, answers.append)
        await until(lambda: answers)
        peers.close()
    assert answers[0].error_code == 0


async def test_isr_changes_are_asked_for() -> None:
    heard: list[IsrChangeResult] = []
    partition = {"partition_index": 0, "error_code": int(ErrorCode.FENCED_LEADER_EPOCH)}
    answer = SimpleNamespace(
        error_code=0, topics=[SimpleNamespace(topic_name="t", partitions=[SimpleNamespace(**partition)])]
    )

    async def request(*asked: Any) -> Any:
        return answer

    controller = SimpleNamespace(request=fails_once(request), close=lambda: None)
    sender = AlterPartitionSender(cast(Any, controller), 1, lambda: 1)
    sender.submit(TopicPartition("t", 0), None, 1, (1,), 0, heard.append)
    await until(lambda: heard)
    sender.close()


@pytest.mark.parametrize("what", ["read", "pipeline", "multi"])
async def test_isr_changes_are_written_and_told(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.broker.zk.isr_writer.CHECK_S", 0.005)
    monkeypatch.setattr("logyard.broker.zk.isr_writer.LINGER_S", 0.0)
    tree = ZooKeeperTree(ManualClock())
    zk = MemoryZooKeeper(tree)
    await create_persistent_paths(zk)
    path = partition_state.path(TopicPartition("t", 0))
    await zk.pipeline([[Create(parent)] for parent in paths.ancestors(path)])
    state = partition_state.decode(
        b'{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":9,"isr":[1,2]}', 0, path
    )
    await zk.multi([Create(path, partition_state.encode(state))])
    setattr(zk, what, fails_once(getattr(zk, what)))
    heard: list[IsrChangeResult] = []
    writer = DirectIsrWriter(zk, 1)
    writer.submit(TopicPartition("t", 0), None, 4, (1,), 0, heard.append)
    await until(lambda: heard and tree.children("/isr_change_notification"))
    assert heard[0].error is ErrorCode.NONE
    writer.close()


async def test_producer_ids_are_fetched() -> None:
    async def allocate() -> range:
        return range(5, 10)

    ids = ProducerIds(fails_once(allocate))
    assert await ids.next() == 5
    ids.close()


async def test_the_controller_takes_the_next_event(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[str] = []

    def observe(envelope: Any, effect: Any) -> None:
        if type(envelope.event).__name__ == "SessionLost":
            raise Unexpected
        handled.append(type(envelope.event).__name__)

    settings = SimpleNamespace(broker_id=1, level=0)
    monkeypatch.setattr("logyard.broker.controller.runner.encoding.Encoder", lambda *a: None)
    runner = ControllerRunner(
        cast(Any, None), cast(Any, None), ManualClock(), cast(Any, settings), chance=cast(Any, None), observer=observe
    )
    await runner.start()
    runner.on_session_lost()
    runner.on_session_established()
    await until(lambda: "SessionRestored" in handled)
    await runner.stop()


async def test_logs_are_kept_up() -> None:
    turns = {"every": 0, "keep": 0}

    async def work(which: str) -> None:
        turns[which] += 1
        if turns[which] == 1:
            raise Unexpected

    background = BackgroundWork(print)
    background.every(5, partial(work, "every"))
    background.keep(partial(work, "keep"))
    await until(lambda: turns["every"] > 2 and turns["keep"] == 2)
    await background.stop()


async def test_a_chore_goes_on_though_it_met_what_is_known_to_go_wrong() -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise StorageError("no file descriptors left")

    background = BackgroundWork(print)
    background.keep(work)
    await until(lambda: turns == 2)
    await background.stop()


@pytest.mark.parametrize("what", ["open_worker", "logs", "end"])
async def test_logs_are_cleaned(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.broker.cleaner.cleaner.WARM_S", 0.0)  # an idle worker ends at once
    async with LeaseWorld() as world:
        fill(world.lead(), 60)
        worker = Worker(world)
        if what == "end":
            worker.end = fails_once(worker.end)  # type: ignore[method-assign]
        ports = {"open_worker": lambda: worker, "logs": world.store.logs.all_current}
        failing = {name: fails_once(work) for name, work in ports.items() if name == what}
        cleaner = cleaner_of(world, worker, CleanerSettings(threads=1, backoff_ms=10), **failing)
        cleaner.start()
        await until(lambda: cleaner.cleaned)
        if what == "end":
            await until(lambda: worker.ends)
        await cleaner.close()


async def test_a_worker_that_cannot_end_does_not_keep_a_broker_from_ending() -> None:
    async with LeaseWorld() as world:
        worker = Worker(world)
        cleaner = cleaner_of(world, worker, CleanerSettings(threads=1, backoff_ms=10))
        cleaner.start()
        await until(lambda: worker.ends)  # idle: ended, and opened again for the next log
        worker.end = fails_once(worker.end)  # type: ignore[method-assign]
        async with asyncio.timeout(10):
            await cleaner.close()


@pytest.mark.parametrize("what", ["open_worker", "logs", "end"])
async def test_decisions_that_were_missed_are_looked_for(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "FIRST_LOOK_S", 0.005)
    looks: list[int] = []

    def logs() -> list[Any]:
        looks.append(1)
        return []

    async def end() -> None: ...

    worker = SimpleNamespace(end=end)
    ports = SimpleNamespace(open_worker=lambda: worker, logs=logs)
    failing: Any = worker if what == "end" else ports
    setattr(failing, what, fails_once(getattr(failing, what)))
    looking = catch_up.CatchUp(cast(Any, ports))
    looking.start()
    await until(lambda: len(looks) >= 2)
    await looking.close()


@pytest.mark.parametrize("what", ["_round", "_sleep"])
def test_a_leader_is_followed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once = fails_once(getattr(LeaderFetcher, what))
    monkeypatch.setattr(LeaderFetcher, what, lambda *args: once(*args))

    async def story(f: Followed) -> None:
        f.leader.script = [ConnectionResetError(), [answer(records=stored(0, 0))]]
        f.follow()
        await asyncio.sleep(10)
        assert f.log().log_end_offset == 1

    loop = VirtualLoop()
    run(loop, story)
    loop.close()
