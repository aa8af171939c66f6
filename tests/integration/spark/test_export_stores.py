"""Exports into real servers of object stores, whose requests are lost, repeated, delayed, and whose writers die before
and after every one: afterwards every offset is there once."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from logyard.spark_jobs.objects import urls
from logyard.spark_jobs.objects.deciding import BrokenPromise, check_promise
from logyard.spark_jobs.objects.store import ObjectStore
from tests.support import dying_export, faulty_proxy
from tests.support.export_runs import Flights, pairs
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.object_servers import SECRET, ObjectServer, running_azure, running_s3
from tests.support.store_exports import RUN_S, StoreExports

pytestmark = pytest.mark.timeout(900)

MANIFEST = "/_manifest/0"
FAULTS = (
    faulty_proxy.DROP_ANSWER,
    faulty_proxy.NEVER_SEND,
    faulty_proxy.REPEAT,
    faulty_proxy.DELAY,
    faulty_proxy.BUSY,
    faulty_proxy.CONFLICT,
)
# Of other requests a 409 is no answer that any store gives.
ANYWHERE = FAULTS[:-1]
RECORDS = 12


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with running_azure(tmp_path_factory.mktemp("azure")) as server:
        yield server


class Yard:
    """A log with some records, and new places for exports of it, each through the proxy and beside it."""

    def __init__(self, root: Path, server: ObjectServer, proxy: FaultyProxy) -> None:
        self.flights, self.proxy, self._server, self._places = Flights(root), proxy, server, 0
        self.flights.grow(pairs(RECORDS))

    def place(self) -> tuple[StoreExports, StoreExports]:
        """Exports to a new folder: straight, and through the proxy."""
        self._places += 1
        url = self._server.url(f"{self.flights.root.name}/{self._places}")
        straight = StoreExports(self.flights, url, self._server.settings)
        return straight, straight.through(self.proxy.endpoint)

    def requests(self, *words: str) -> int:
        """How many requests an export takes."""
        _, through = self.place()
        self.proxy.quiet()
        through.run(*words)
        return len(self.proxy.requests)


@pytest.fixture
def yard(tmp_path: Path, s3: ObjectServer) -> Iterator[Yard]:
    with FaultyProxy(s3.endpoint) as proxy:
        yield Yard(tmp_path, s3, proxy)


def ended(process: BaseProcess) -> int | None:
    process.join(RUN_S)
    return process.exitcode


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_version_is_decided_once_whatever_happens_to_its_request(fault: Fault, yard: Yard) -> None:
    straight, through = yard.place()
    yard.proxy.on(MANIFEST, fault)
    through.run()
    assert straight.offsets() == list(range(RECORDS))
    straight.run()
    assert straight.offsets() == list(range(RECORDS))
    assert sum(told.startswith("PUT ") and MANIFEST in told for told in yard.proxy.requests) >= 1


class Dying:
    """Kills a process from within one of its requests."""

    def __init__(self) -> None:
        self.process: BaseProcess | None = None

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        # Not `join`: the fork server tells how a process has ended only once, and another thread waits for it too.
        assert connection.wait([self.process.sentinel], 30)


Ways = Callable[[Callable[[], None]], Fault]
WAYS: tuple[Ways, ...] = (faulty_proxy.before, faulty_proxy.after)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_killed_at_its_version_and_run_again(way: Ways, yard: Yard) -> None:
    straight, through = yard.place()
    dying = Dying()
    yard.proxy.on(MANIFEST, way(dying.kill))
    dying.process = through.start()
    assert ended(dying.process) == -signal.SIGKILL
    assert straight.offsets() == (list(range(RECORDS)) if way is faulty_proxy.after else [])
    straight.run()
    assert straight.offsets() == list(range(RECORDS))


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [("--commit-mib", "1", "--merge-files", "2"), ("--mode", "upsert")], ids=lambda w: w[0]
)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_killed_at_every_request_and_run_again(way: Ways, words: tuple[str, ...], yard: Yard) -> None:
    wanted = list(range(RECORDS))[-5:] if "upsert" in words else list(range(RECORDS))
    for request in range(yard.requests(*words)):
        straight, through = yard.place()
        dying = Dying()
        yard.proxy.at(request, way(dying.kill))
        dying.process = through.start(*words)
        assert ended(dying.process) in (0, -signal.SIGKILL)  # threads may change how many requests there are
        assert straight.offsets() in ([], wanted)
        straight.run(*words)
        assert straight.offsets() == wanted, yard.proxy.requests[-1]


@pytest.mark.long
@pytest.mark.parametrize("fault", ANYWHERE, ids=lambda fault: fault.__name__)
def test_any_request_may_be_lost_or_repeated(fault: Fault, yard: Yard) -> None:
    for request in range(yard.requests()):
        straight, through = yard.place()
        yard.proxy.at(request, fault)
        through.run()
        assert straight.offsets() == list(range(RECORDS)), request
        straight.run()
        assert straight.offsets() == list(range(RECORDS)), request


def test_of_several_at_once_one_wins(yard: Yard) -> None:
    rounds = 3
    for _ in range(rounds):
        straight, _ = yard.place()
        ends = [ended(one) for one in [straight.start() for _ in range(4)]]
        # Who came when all was done has nothing to do, and succeeds.
        assert set(ends) <= {0, 1}
        assert 0 in ends
        assert straight.offsets() == list(range(RECORDS))


def test_large_files_go_in_parts(yard: Yard, s3: ObjectServer) -> None:
    yard.flights.grow([(b"key", os.urandom(2 << 20)) for _ in range(12)])
    straight, through = yard.place()
    yard.proxy.quiet()
    through.run("--split-mib", "64")
    assert any("partNumber=" in told for told in yard.proxy.requests)
    assert straight.offsets() == list(range(RECORDS + 12))


def test_a_store_that_ignores_the_condition_is_refused(yard: Yard, s3: ObjectServer) -> None:
    """As older stores that speak S3 do."""

    def forget(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        del handler.headers["If-None-Match"]
        faulty_proxy.FORWARD(proxy, handler, body)

    yard.proxy.always(forget)
    store = ObjectStore(s3.url(f"{yard.flights.root.name}/forgets"), s3.through(yard.proxy.endpoint))
    with pytest.raises(BrokenPromise, match="this store lets two writers create one object"):
        check_promise(store)


# --- Azure


@pytest.mark.long
def test_azure(tmp_path: Path, azure: ObjectServer) -> None:
    assert urls.parse(azure.url("x")).kind == "Azure"
    with FaultyProxy(azure.endpoint) as proxy:
        yard = Yard(tmp_path, azure, proxy)
        for fault in FAULTS:
            straight, through = yard.place()
            proxy.on(MANIFEST, fault)
            through.run()
            straight.run()
            assert straight.offsets() == list(range(RECORDS))
        straight, _ = yard.place()
        ends = [ended(one) for one in [straight.start() for _ in range(4)]]
        assert 0 in ends
        assert straight.offsets() == list(range(RECORDS))


# --- by Spark


@pytest.mark.spark
def test_sparks_executors_write_and_a_lost_answer_costs_nothing(yard: Yard) -> None:
    straight, through = yard.place()
    yard.proxy.on(MANIFEST, faulty_proxy.DROP_ANSWER)
    out, err, status = spark(through, "nowhere")
    assert status == 0, err[-3000:]
    assert straight.offsets() == list(range(RECORDS))
    assert SECRET not in out + err


@pytest.mark.long
@pytest.mark.spark
def test_spark_is_killed_before_the_manifest_and_run_again(yard: Yard) -> None:
    straight, _ = yard.place()
    _, err, status = spark(straight, "before the manifest")
    assert status == -signal.SIGKILL, err[-3000:]
    assert straight.offsets() == []
    _, err, status = spark(straight, "nowhere")
    assert status == 0, err[-3000:]
    assert straight.offsets() == list(range(RECORDS))


@pytest.mark.long
@pytest.mark.spark
def test_of_two_sparks_one_wins_and_the_other_says_so(yard: Yard) -> None:
    straight, _ = yard.place()
    both = [start_spark(straight, "race") for _ in range(2)]
    said = [one.communicate(timeout=600)[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 1], said
    loser = next(err for one, err in zip(both, said, strict=True) if one.returncode == 1)
    assert "another export committed version 1 meanwhile" in loser.strip().splitlines()[-1]
    assert straight.offsets() == list(range(RECORDS))


def start_spark(exports: StoreExports, place: str) -> "subprocess.Popen[str]":
    words = ["--log-dir", str(exports.flights.log), "--destination", exports.url]
    return dying_export.start(place, exports.flights.root / "export", [*words, "--store", str(exports.settings_file())])


def spark(exports: StoreExports, place: str) -> tuple[str, str, int]:
    process = start_spark(exports, place)
    out, err = process.communicate(timeout=600)
    return out, err, process.returncode
