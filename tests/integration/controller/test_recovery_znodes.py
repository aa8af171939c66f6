"""What a recovery reads and writes in a real ZooKeeper: the election of nothing, the journal, the fence."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.recovery.journal import PATH as STEPS
from logyard.admin.recovery.witnesses import FENCE, STOP
from logyard.admin.zookeeper.ensemble import KazooEnsemble
from logyard.broker.znodes import preferred_election
from tests.support.zookeeper import ZooKeeperServer

ELECTION = preferred_election.PATH


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    made = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def chroot(server: ZooKeeperServer, tmp_path: Path) -> str:
    """A cluster without brokers, elected long ago; nobody takes anything away."""
    name = f"/{tmp_path.name}"
    with kazoo(server.connect) as zk:
        zk.ensure_path(f"{name}/admin")
        zk.create(f"{name}/controller", json.dumps({"version": 1, "brokerid": 3, "timestamp": "0"}).encode())
        zk.create(f"{name}/controller_epoch", b"7")
    return server.connect + name


@contextmanager
def kazoo(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_what_nobody_takes_away_is_withdrawn(chroot: str) -> None:
    with closing(KazooEnsemble(chroot)) as ensemble, kazoo(chroot) as zk:
        assert ensemble.exercise(0.3) is False
        assert zk.exists(ELECTION) is None
        # One that somebody else asked for is left to him, and tells the same.
        zk.create(ELECTION, b"{}")
        assert ensemble.exercise(0.3) is False
        assert zk.exists(ELECTION) is not None


def test_two_recoveries_do_not_take_each_others_for_a_controllers_work(chroot: str) -> None:
    def look(_: int) -> list[bool | None]:
        with closing(KazooEnsemble(chroot)) as ensemble:
            return [ensemble.exercise(0.3) for _ in range(8)]

    with ThreadPoolExecutor(3) as pool:
        found = [answer for answers in pool.map(look, range(3)) for answer in answers]
    assert True not in found
    assert found.count(False) >= 8


def test_the_work_of_a_controller_is_seen(chroot: str) -> None:
    with closing(KazooEnsemble(chroot)) as ensemble, kazoo(chroot) as zk, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ensemble.exercise, 5.0)
        while zk.exists(ELECTION) is None:
            time.sleep(0.01)
        assert zk.get(ELECTION)[0] == b'{"version":1,"partitions":[]}'
        zk.delete(ELECTION)
        assert answer.result() is True


def test_a_step_is_written_while_nobody_else_looks(chroot: str) -> None:
    with closing(KazooEnsemble(chroot)) as one, closing(KazooEnsemble(chroot)) as other:
        before = one.journal()
        assert before.steps == ()
        other.journal()
        assert one.note(before, STOP, 2) is False
        assert one.note(one.journal(), STOP, 2) is True
        (step,) = other.journal().steps
        assert (step.kind, step.broker) == (STOP, 2)
        assert 0 <= other.journal().now_ms - step.at_ms < 60_000


def test_a_fence_and_its_step_are_one(chroot: str) -> None:
    with closing(KazooEnsemble(chroot)) as ensemble, kazoo(chroot) as zk:
        seen, journal = ensemble.controller(), ensemble.journal()
        assert (seen.holder, seen.epoch) == (3, 7)
        assert seen.elected_ms == zk.get("/controller")[1].ctime
        zk.set("/controller_epoch", b"8")  # somebody was elected since
        assert ensemble.fence(seen, journal) is False
        assert (zk.exists("/controller") is not None, ensemble.journal().steps) == (True, ())
        assert ensemble.fence(ensemble.controller(), ensemble.journal()) is True
        assert zk.exists("/controller") is None
        assert [(step.kind, step.broker) for step in ensemble.journal().steps] == [(FENCE, 3)]


def test_old_and_foreign_steps(chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(KazooEnsemble(chroot)) as ensemble, kazoo(chroot) as zk:
        ensemble.note(ensemble.journal(), STOP, 2)
        for data in (b"", b"[]", b"nonsense", b'{"step": "dance", "broker": 1}', b'{"step": "stop"}'):
            zk.create(f"{STEPS}/step-", data, sequence=True)
        assert [step.broker for step in ensemble.journal().steps] == [2]
        monkeypatch.setattr("logyard.admin.recovery.journal.KEPT_MS", -1)
        ensemble.journal()
        assert zk.get_children(STEPS) == []


def test_who_may_not_write_does_nothing_and_is_told(chroot: str) -> None:
    with closing(KazooEnsemble(chroot)) as ensemble, kazoo(chroot) as zk:
        zk.set_acls("/admin", [make_acl("world", "anyone", read=True)])
        assert ensemble.exercise(0.3) is None
        zk.ensure_path(STEPS)
        zk.set_acls(STEPS, [make_acl("world", "anyone", read=True)])
        with pytest.raises(EnsembleUnreachable, match="does not let this user write"):
            ensemble.journal()


def test_a_zookeeper_that_goes_away_is_said_soon(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "own")
    server.start()
    with closing(KazooEnsemble(server.connect, 2.0)) as ensemble:
        assert ensemble.controller().holder is None
        server.stop()
        began = time.monotonic()
        with pytest.raises(EnsembleUnreachable):
            ensemble.controller()
        assert time.monotonic() - began < 10
