"""A cluster, the ways to it from Airflow's host, and everything that can go wrong with either; pure, second by second.

    world = World(seed, launcher_kind="full")  # the seed chooses brokers, topics and placements
    world.make_ill(...), world.pause(broker, 20.0), world.zookeeper_reachable = False
    Recoverer(ensemble=WorldEnsemble(world), client=WorldClient(world), launcher=WorldLauncher(world), ...)
    world.pass_time(60.0)

`World` is the truth. The recoverer meets it through the ports only: as client, ensemble, launcher and pause. What it
does is judged against the truth at once (`Touched`), not against what it could know. `world.log` tells what happened.
"""

import random
from dataclasses import dataclass, field

from logyard.admin.recovery.witnesses import Step
from logyard.broker.model import PartitionState, TopicPartition

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
