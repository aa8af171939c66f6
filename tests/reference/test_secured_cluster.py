"""A secured cluster of both kinds: what either kind's tool writes both obey at once, and the control plane's listener.

test_one_cluster.py has replication, elections and the controller's death on such a cluster.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.security.sasl.mechanism import SCRAM_SHA_512
from logyard.broker.security.sasl.scram import ScramClient
from logyard.cli import main as entry
from logyard.cli.users import VARIABLE
from logyard.local import interrupts
from tests.reference.both_kinds import BothKinds
from tests.support import kafka, secured
from tests.support.load import Load
from tests.support.real_cluster import eventually
from tests.support.sasl_client import METADATA, SaslClient
from tests.support.secured import CONTROL, Secured

pytestmark = pytest.mark.timeout(900)

KINDS = "KO"
PROMISED_S = 1.0
KNOWN, DENIED = 0, 29


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    kafka.jars_or_skip()
    with secured.running(tmp_path_factory.mktemp("both"), KINDS, between=SCRAM_SHA_512, control=True) as running:
        running.create("flights", partitions=2, replicas=2)
        yield running


@pytest.fixture(scope="module")
def both(world: Secured) -> Iterator[BothKinds]:
    with closing(BothKinds(world.reached_by("admin"), KINDS)) as both:
        yield both


@pytest.fixture(params=["K", "O"], ids=["Kafka controls", "ours controls"])
def controlled(both: BothKinds, request: pytest.FixtureRequest) -> BothKinds:
    both.controller_of(request.param)
    return both


def address(world: Secured, broker: int) -> str:
    return world.bootstrap().split(",")[broker]


class Witness:
    """Who asks both brokers all the time, over connections of its own, whether alice may see the topic."""

    def __init__(self, world: Secured) -> None:
        self._world = world
        self._tls = ssl.create_default_context(cafile=str(world.authority.certificate))
        self.told: dict[int, list[tuple[float, int]]] = {}

    async def connected(self, broker: int, user: str, password: str) -> tuple[SaslClient, int]:
        """Log in; returns the connection and the answer's error code."""
        client = await SaslClient.connect(int(address(self._world, broker).rpartition(":")[2]), self._tls)
        answer = await client.log_in(SCRAM_SHA_512, ScramClient(SCRAM_SHA_512, user, password, f"n{time.time_ns()}"))
        return client, int(answer.error_code)

    async def watch(self, broker: int, done: asyncio.Event) -> None:
        client, code = await self.connected(broker, "alice", self._world.users["alice"].scram)
        assert code == 0
        asked = {"topics": [{"name": "flights"}], "allow_auto_topic_creation": False}
        while not done.is_set():
            answer = await client.ask(METADATA, 8, **asked)
            self.told[broker].append((time.monotonic(), answer.topics[0].error_code))
            await asyncio.sleep(0.005)
        await client.close()

    async def during(self, work: Callable[[], object], code: int) -> dict[int, float]:
        """Do that in a thread; returns when each broker answered `code` for the first time after another one."""
        self.told = {broker: [] for broker in range(len(KINDS))}
        done = asyncio.Event()
        watching = [asyncio.create_task(self.watch(broker, done)) for broker in self.told]
        while not all(self.told.values()):
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in watching)
        assert all(told[-1][1] != code for told in self.told.values())
        await asyncio.to_thread(work)
        deadline = time.monotonic() + 10
        while not all(told[-1][1] == code for told in self.told.values()) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        done.set()
        await asyncio.gather(*watching)
        return {broker: next(at for at, found in told if found == code) for broker, told in self.told.items()}


def by_kafkas_tool(world: Secured, broker: int, *words: str) -> None:
    where = ("--bootstrap-server", address(world, broker), "--command-config", str(world.file("admin")))
    kafka.tool("acls", *where, *words)


def by_our_tool(world: Secured, broker: int, *words: str) -> None:
    command = words[0].removeprefix("--")
    where = ("--bootstrap-server", address(world, broker), "--command-config", str(world.file("admin")))
    assert entry.main(["acls", command, *words[1:], *where]) == 0


@pytest.mark.parametrize("tool", [by_kafkas_tool, by_our_tool])
@pytest.mark.parametrize("asked", [0, 1], ids=["Kafka is asked", "ours is asked"])
def test_an_acl_counts_at_both_within_a_second(
    world: Secured,
    controlled: BothKinds,
    asked: int,
    tool: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    acl = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "flights")
    witness = Witness(world)
    for words, code in ((("--add", *acl), KNOWN), (("--remove", *acl, "--force"), DENIED)):
        obeyed = asyncio.run(witness.during(lambda words=words: tool(world, asked, *words), code))  # type: ignore[misc]
        print(f"{tool.__name__} {words[0]}: apart by {abs(obeyed[0] - obeyed[1]) * 1000:.0f} ms")
        assert abs(obeyed[0] - obeyed[1]) < PROMISED_S


@pytest.mark.parametrize("asked", [0, 1], ids=["Kafka is asked", "ours is asked"])
@pytest.mark.parametrize("is_ours", [False, True], ids=["Kafka's tool", "our tool"])
def test_a_user_counts_at_both_within_a_second(
    world: Secured,
    controlled: BothKinds,
    asked: int,
    is_ours: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    user = f"user-{asked}-{is_ours}-{time.time_ns()}"
    where = ("--bootstrap-server", address(world, asked), "--command-config", str(world.file("admin")))
    kafkas = (*where, "--alter", "--entity-type", "users", "--entity-name", user)

    def change(password: str, verb: str) -> None:
        if is_ours:
            monkeypatch.setenv(VARIABLE, password)
            assert entry.main(["users", verb, "--user", user, "--mechanism", SCRAM_SHA_512, *where]) == 0
        else:
            kafka.tool("configs", *kafkas, "--add-config", f"{SCRAM_SHA_512}=[password={password}]")

    async def outcomes(password: str) -> list[int]:
        made = [await Witness(world).connected(broker, user, password) for broker in (0, 1)]
        for client, _ in made:
            await client.close()
        return [code for _, code in made]

    def told(password: str) -> list[int]:
        return asyncio.run(outcomes(password))

    change("first-word", "add")
    begun = time.monotonic()
    eventually(lambda: told("first-word") == [0, 0], "both let the user in", 10)
    assert time.monotonic() - begun < PROMISED_S
    change("second-word", "change-password")
    begun = time.monotonic()
    eventually(lambda: told("second-word") == [0, 0], "both know the new password", 10)
    assert time.monotonic() - begun < PROMISED_S
    assert told("first-word") == [58, 58]
    if is_ours:
        assert entry.main(["users", "delete", "--user", user, *where]) == 0
    else:
        kafka.tool("configs", *kafkas, "--delete-config", SCRAM_SHA_512)
    begun = time.monotonic()
    eventually(lambda: told("second-word") == [58, 58], "both have forgotten the user", 10)
    # A refusal takes a moment itself (connection.failed.authentication.delay.ms).
    assert time.monotonic() - begun < PROMISED_S + 0.5


def links_to(world: Secured, both: BothKinds, controller: int) -> set[str]:
    """On which listeners of the other brokers the controller's process has connections."""
    others = {
        port: name
        for broker, ports in world.ports().items()
        if broker != controller
        for name, port in {**ports, "PLAINTEXT": int(both.cluster.address(broker).rpartition(":")[2])}.items()
    }
    (pid,) = [each["pid"] for each in both.cluster.description["brokers"] if each["id"] == controller]
    found = psutil.Process(pid).net_connections()
    return {others[link.raddr.port] for link in found if link.raddr and link.raddr.port in others}


def test_the_controllers_requests_come_by_its_own_listener(world: Secured, controlled: BothKinds) -> None:
    both = controlled
    before = both.controller()
    topic = f"controlled-{time.time_ns()}"
    both.admin.create_topic(NewTopic(topic, assignment={0: (0, 1), 1: (1, 0)}, configs={}))
    eventually(lambda: both.cluster.isrs_full(topic), "led and in sync")
    assert links_to(world, both, before) == {CONTROL, "SASL_SSL"}  # the latter are the fetcher's
    load = Load(both.cluster, topic)
    load.start()
    eventually(lambda: len(load.acknowledged) > 200, "load runs")
    both.kill(before)
    assert both.controller(unlike=before) == 1 - before
    both.start(before)
    # The ISR grows by AlterPartition, which goes to the control plane's listener too.
    eventually(lambda: both.cluster.isrs_full(topic), "back in every ISR", 90)
    load.stop()
    assert load.lost() == {}
    both.settled(topic)


def test_brokers_of_both_kinds_log_in_to_each_other_with_tokens(tmp_path: Path) -> None:
    """The tokens end every twenty seconds: both kinds get new ones in time, and nothing is lost or delayed by it."""
    kafka.jars_or_skip()
    with secured.running(tmp_path / "cluster", KINDS, between="OAUTHBEARER", token_life_s=20) as world:
        world.create("events", partitions=2, replicas=2)
        load = Load(world.reached_by("admin"), "events")
        load.start()
        before = world.endpoint.asked
        time.sleep(50)
        eventually(lambda: world.reached_by("admin").isrs_full("events"), "in sync")
        load.stop()
        assert load.lost() == {}
        assert world.endpoint.asked - before >= 4  # twice for each broker
        for log in (tmp_path / "cluster").rglob("broker-*.log"):
            for trouble in ("cannot log in to another", "refuses this broker's log-in", "Failed authentication"):
                assert trouble not in log.read_text()
            assert world.broker_password not in log.read_text()
