"""A cluster, the ways to it from Airflow's host, and everything that can go wrong with either; pure, second by second.

`World` is the truth. The recoverer meets it through the ports only: as client, ensemble, launcher and pause. What it
does is judged against the truth at once (`Touched`), not against what it could know.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.ports import AccessRefused, ClusterUnreachable, EnsembleUnreachable, PartitionsView
from logyard.admin.recovery.witnesses import FENCE, ControllerView, HostState, Journal, Probe, Queue, Step, Wire
from logyard.broker.errors import LogyardError
from logyard.broker.model import Assignment, BrokerInfo, Endpoint, PartitionState, TopicPartition

NEVER = float("inf")
GRACE_S = 45.0
SESSION_S = 18.0
LAG_S = 30.0
# Nothing that is only slow is slow for longer than this; what is ill, is so for ever.
PAUSE_S_MAX = 40.0


class Touched(AssertionError):
    """A recovery did something to a cluster that needed it not, or too much."""


@dataclass(slots=True)
class Broker:
    """One broker as it is. Times are seconds of the world's own clock.

    `frozen_until`: nothing of the process runs (NEVER: SIGSTOP; else a pause, as of a collector). `mute`: it talks to
    ZooKeeper and answers nobody. `stuck`: its controller's queue does not move. `cut_until`: ZooKeeper is out of its
    reach.
    """

    id: int
    process: bool = True
    frozen_until: float = -1.0
    mute: bool = False
    stuck: bool = False
    cut_until: float = -1.0
    loading_until: float = -1.0
    seen_by_zookeeper: float = 0.0
    epoch: int = 1  # czxid of its registration; 0: not registered
    registered_at: float = 0.0
    insync_until: float = NEVER

    def frozen(self, now: float) -> bool:
        return now < self.frozen_until

    def pings(self, now: float) -> bool:
        return self.process and not self.frozen(now) and now >= self.cut_until and now >= self.loading_until

    def serves(self, now: float) -> bool:
        return self.process and not self.frozen(now) and not self.mute and now >= self.loading_until


@dataclass(slots=True)
class Way:
    """How Airflow's host reaches a broker: requests out, answers in, and the login that it takes."""

    out: bool = True
    back: bool = True  # a proxy between accepts, and no answer comes
    login: bool = True
    queue: bool = True  # the right to ask the controller


@dataclass
class World:
    """Brokers, ZooKeeper, partitions, and Airflow's host."""

    seed: int
    launcher_kind: str = "full"  # none, start, blind (start and stop), systemd (RUNS or GONE), full
    takeover_s: float = 5.0
    now: float = 10_000.0
    skew_s: float = 0.0  # of ZooKeeper's clock
    zookeeper_reachable: bool = True
    zookeeper_writable: bool = True
    launcher_broken: bool = False
    brokers: dict[int, Broker] = field(default_factory=dict)
    ways: dict[int, Way] = field(default_factory=dict)
    holder: int | None = None
    elected_at: float = 0.0
    held_czxid: int = 0
    epoch: int = 1
    zxid: int = 10
    electing_at: float = NEVER
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    replicas: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    min_isr: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    journal_version: int = 0
    stopped_by_us: dict[int, float] = field(default_factory=dict)
    fences: list[float] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._settled: tuple[list[tuple[bool, int, bool]], bool] | None = None
        for broker in range(1, self.random.choice((3, 3, 4, 5)) + 1):
            self.brokers[broker], self.ways[broker] = Broker(broker), Way()
        ids = sorted(self.brokers)
        for number in range(self.random.randint(2, 6)):
            topic = f"t{number}"
            placed = tuple(self.random.sample(ids, min(self.random.choice((1, 3, 3, 3)), len(ids))))
            self.replicas[TopicPartition(topic, 0)] = placed
            self.states[TopicPartition(topic, 0)] = PartitionState(placed[0], 0, placed, 1)
            self.min_isr[topic] = self.random.choice((1, 2)) if len(placed) > 1 else 1
        self.holder, self.held_czxid = self.random.choice(ids), 5

    # -- what happens by itself ---------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 1.0, end)
            self._second()

    def _second(self) -> None:
        for broker in self.brokers.values():
            if broker.pings(self.now):
                broker.seen_by_zookeeper = self.now
                if not broker.epoch:
                    self.zxid += 1
                    broker.epoch, broker.registered_at = self.zxid, self.now
                    self.stopped_by_us.pop(broker.id, None)
            elif broker.epoch and self.now - broker.seen_by_zookeeper > SESSION_S:
                broker.epoch = 0
        if self.holder is not None and not self.brokers[self.holder].epoch:
            self.vacate()
        if self.holder is None and self.now >= self.electing_at:
            self._elect()
        self._replicate()

    def vacate(self) -> None:
        self.holder, self.electing_at = None, self.now + self.random.choice((0.0, 1.0, 3.0))

    def _elect(self) -> None:
        able = [b.id for b in self.brokers.values() if b.epoch and b.pings(self.now)]
        if able:
            self.zxid += 1
            self.holder, self.held_czxid = self.random.choice(able), self.zxid
            self.epoch, self.elected_at, self.electing_at = self.epoch + 1, self.now, NEVER

    @property
    def controls(self) -> bool:
        """Whether a controller works through its queue now."""
        if self.holder is None:
            return False
        broker = self.brokers[self.holder]
        ready = self.now >= self.elected_at + self.takeover_s
        return ready and broker.pings(self.now) and not broker.stuck

    def _replicate(self) -> None:
        """Leaders drop who does not fetch, and take back who does; a controller elects where a leader is gone."""
        controls, mood = self.controls, []
        for broker in self.brokers.values():
            serves = broker.serves(self.now)
            if serves and broker.epoch:
                broker.insync_until = self.now + LAG_S
            mood.append((serves, broker.epoch, broker.insync_until >= self.now))
        if (mood, controls) == self._settled:
            return  # nothing happened that partitions would notice
        before = dict(self.states)
        self._move_leaders(controls)
        self._settled = (mood, controls) if self.states == before else None

    def _move_leaders(self, controls: bool) -> None:
        for tp, state in self.states.items():
            leader, isr = state.leader, state.isr
            if controls:
                alive = [b for b in self.replicas[tp] if b in isr and self.brokers[b].epoch]
                if leader not in alive:
                    leader = alive[0] if alive else -1
                if alive:
                    isr = tuple(b for b in isr if self.brokers[b].epoch)
            if leader in self.brokers and self.brokers[leader].serves(self.now):
                fetching = [b for b in self.replicas[tp] if self.brokers[b].insync_until >= self.now]
                back = [b for b in fetching if b not in isr and self.brokers[b].serves(self.now)]
                isr = tuple(b for b in isr if b in fetching or b == leader) + tuple(back)
            if (leader, isr) != (state.leader, state.isr):
                self.states[tp] = PartitionState(leader, state.leader_epoch + 1, isr, self.epoch)

    # -- judging what was done ----------------------------------------------------------------------

    def is_ill(self, broker: int) -> bool:
        """Whether it is truly dead or hung, and not only slow."""
        found = self.brokers[broker]
        return not found.process or found.frozen_until == NEVER or found.mute

    def judge_stop(self, broker: int) -> None:
        self.log.append(f"{self.now:.0f} stop {broker}")
        if not self.is_ill(broker):
            raise Touched(f"broker {broker} was stopped, and is well")
        others = [b for b, at in self.stopped_by_us.items() if b != broker and self.now - at < 300]
        if others:
            raise Touched(f"broker {broker} was stopped while {others} are down by our hand")
        live = {b for b, found in self.brokers.items() if found.epoch}
        for tp, state in self.states.items():
            left = [b for b in state.isr if b in live and b != broker]
            if broker in live and broker in state.isr and len(left) < self.min_isr[tp.topic]:
                raise Touched(f"broker {broker} was stopped, and {tp} has {left} left of {state.isr}")

    def judge_fence(self) -> None:
        self.log.append(f"{self.now:.0f} fence {self.holder}")
        assert self.holder is not None
        if not self.brokers[self.holder].stuck and not self.is_ill(self.holder):
            raise Touched(f"controller {self.holder} was fenced, and is well")
        if self.now - self.elected_at < GRACE_S - 1.0 and not self.skew_s:
            raise Touched(f"controller {self.holder} was fenced {self.now - self.elected_at} s after its election")
        self.fences = [at for at in self.fences if self.now - at < 3600] + [self.now]
        if len(self.fences) > 3:
            raise Touched("more than three controllers were fenced within an hour")

    def judge_start(self, broker: int) -> None:
        self.log.append(f"{self.now:.0f} start {broker}")
        found = self.brokers[broker]
        if found.epoch and self.now - found.registered_at > 30.0:  # longer than a look takes
            raise Touched(f"broker {broker} was started, and is registered")

    # -- faults ---------------------------------------------------------------------------------------

    def make_ill(self, broker: int, how: str) -> None:
        found = self.brokers[broker]
        match how:
            case "dead":
                found.process = False
            case "frozen":
                found.frozen_until = NEVER
            case "mute":
                found.mute = True
            case "stuck":
                found.stuck = True
        self.log.append(f"{self.now:.0f} {broker} is {how}")

    def pause(self, broker: int, seconds: float) -> None:
        """A collector's pause, or a disk that hangs: slow, and well."""
        if self.brokers[broker].frozen_until != NEVER:
            self.brokers[broker].frozen_until = self.now + seconds
            self.log.append(f"{self.now:.0f} {broker} pauses for {seconds:.0f} s")

    @property
    def whole(self) -> bool:
        return (
            self.controls
            and all(b.epoch and b.serves(self.now) for b in self.brokers.values())
            and all(set(s.isr) == set(self.replicas[tp]) and s.leader >= 0 for tp, s in self.states.items())
        )


class WorldPause:
    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        self._world.pass_time(seconds)


class WorldEnsemble:
    """ZooKeeper, as far as Airflow's host reaches it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def close(self) -> None:
        pass

    def _reached(self, *, writing: bool = False) -> World:
        if not self._world.zookeeper_reachable:
            self._world.pass_time(2.0)
            raise EnsembleUnreachable("ZooKeeper does not answer")
        if writing and not self._world.zookeeper_writable:
            raise EnsembleUnreachable("ZooKeeper does not let us write")
        return self._world

    def controller(self) -> ControllerView:
        w = self._reached()
        brokers = {
            b.id: BrokerInfo(b.id, (Endpoint("PLAINTEXT", "PLAINTEXT", f"host{b.id}", 9092),), None, b.epoch)
            for b in w.brokers.values()
            if b.epoch
        }
        elected_ms = round((w.elected_at + w.skew_s) * 1000)
        return ControllerView(w.holder, w.held_czxid, w.epoch, w.epoch, brokers, elected_ms, "world")

    def partitions(self) -> PartitionsView:
        w = self._reached()
        return PartitionsView(dict(w.states), {tp: Assignment(placed) for tp, placed in w.replicas.items()})

    def exercise(self, timeout_s: float) -> bool | None:
        if not self._world.zookeeper_writable:
            return None
        w = self._reached()
        if not w.controls:
            w.pass_time(timeout_s)
        return w.controls

    def journal(self) -> Journal:
        w = self._reached(writing=True)
        w.journal_version += 1
        return Journal(round((w.now + w.skew_s) * 1000), w.journal_version, tuple(w.steps))

    def note(self, journal: Journal, kind: str, broker: int) -> bool:
        w = self._reached(writing=True)
        if journal.version != w.journal_version:
            return False
        w.zxid += 1
        w.journal_version += 1
        w.steps.append(Step(kind, broker, round((w.now + w.skew_s) * 1000), w.zxid))
        return True

    def fence(self, seen: ControllerView, journal: Journal) -> bool:
        w = self._reached(writing=True)
        if w.holder is None or (seen.czxid, seen.epoch_version) != (w.held_czxid, w.epoch):
            return False
        if not self.note(journal, FENCE, w.holder):
            return False
        w.judge_fence()
        w.vacate()
        return True

    def nudge_election(self) -> bool:
        raise Touched("an election was nudged, and none was missing")

    def repair_epoch(self, seen: ControllerView, epoch: int) -> bool:
        raise Touched("the epoch was repaired, and it was well")


class WorldLauncher:
    """The brokers' own hosts, by a way of their own (ssh, an orchestrator)."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def can_stop(self) -> bool:
        return self._world.launcher_kind != "start"

    def start(self, broker: int, host: str = "", rack: str = "") -> None:
        w, found = self._world, self._world.brokers[broker]
        w.judge_start(broker)
        self._work()
        if not found.process:
            loading = w.random.choice((2.0, 20.0, 90.0))
            w.brokers[broker] = Broker(broker, epoch=0, loading_until=w.now + loading, insync_until=-1.0)

    def stop(self, broker: int, host: str = "", rack: str = "") -> bool:
        w = self._world
        w.judge_stop(broker)
        self._work()
        w.brokers[broker].process = False
        w.stopped_by_us[broker] = w.now
        return True

    def host_state(self, broker: int, host: str = "", rack: str = "") -> HostState:
        w, found = self._world, self._world.brokers[broker]
        if w.launcher_broken or w.launcher_kind not in ("systemd", "full"):
            return HostState.UNKNOWN
        if not found.process:
            return HostState.GONE
        if w.launcher_kind == "systemd":
            return HostState.RUNS
        if w.now < found.loading_until:
            return HostState.STARTING
        return HostState.ANSWERS if found.serves(w.now) else HostState.SILENT

    def _work(self) -> None:
        if self._world.launcher_broken:
            raise LogyardError("ssh: connection refused")


class WorldClient:
    """What is asked of brokers from Airflow's host; everything that recovery does not ask is missing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def close(self) -> None:
        pass

    def probe(self, addresses: Mapping[int, tuple[str, int]], timeout_s: float) -> dict[int, Probe]:
        found = {broker: self.probe_broker(broker) for broker in addresses}
        if any(not probe.wire.is_alive for probe in found.values()):
            self._world.pass_time(timeout_s)
        return found

    def probe_broker(self, broker: int) -> Probe:
        w = self._world
        way, found = w.ways[broker], w.brokers[broker]
        if not way.out:
            return Probe(broker, Wire.UNREACHABLE)
        listens = found.process and w.now >= found.loading_until
        # What takes connections for a closed port, and holds them, deceives where no host gives its word.
        if not way.back and (listens or w.launcher_kind == "full"):
            return Probe(broker, Wire.SILENT)
        if not listens:
            return Probe(broker, Wire.CLOSED)
        if not found.serves(w.now):
            # The kernel accepts until its queue is full.
            return Probe(broker, w.random.choice((Wire.SILENT, Wire.SILENT, Wire.UNREACHABLE)))
        if not way.login:
            return Probe(broker, Wire.REFUSES, detail="the login is refused")
        believed = -1 if w.holder is None else w.holder
        queue = Queue.REFUSES
        if broker == w.holder:
            queue = Queue.ANSWERS if w.controls else Queue.SILENT if found.stuck else Queue.REFUSES
        return Probe(broker, Wire.ANSWERS, queue if way.queue else Queue.FORBIDDEN, believed, "world")

    def topics_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigValue]]:
        w = self._world
        if not any(p.wire is Wire.ANSWERS for p in map(self.probe_broker, w.brokers)):
            raise AccessRefused("refused") if w.ways[1].out else ClusterUnreachable("no broker answered")
        return {t: {"min.insync.replicas": ConfigValue(str(w.min_isr[t]), "DEFAULT_CONFIG")} for t in topics}

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a recovery asked for {name}")
