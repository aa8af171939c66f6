"""Recoveries with random faults, one history for each seed: healthy brokers are never touched, broken ones come back.

Faults of Airflow's side: one-way networks, refused logins, missing rights, ZooKeeper out of reach or read-only, a
launcher that fails, clocks that jump, workers that come late, two recoveries at a time. Faults of the cluster: brokers
that are dead, stopped by SIGSTOP, mute, cut off from ZooKeeper, a controller whose queue is stuck. And what is slow but
healthy: pauses, take-overs, loading.
"""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from logyard.admin.recovery import rules
from logyard.admin.recovery.case import Case, Expectation, Limits
from logyard.admin.recovery.recovery import NotRecovered, Recoverer
from logyard.admin.recovery.witnesses import STOP, HostState, Probe, Queue, Wire
from tests.support.lengths import IS_PROOF
from tests.support.recovery_ports import WorldClient, WorldEnsemble, WorldLauncher, WorldPause
from tests.support.recovery_world import GRACE_S, PAUSE_S_MAX, Touched, Way, World

SEEDS = 3000
PLAYED = SEEDS if IS_PROOF else SEEDS // 6
TROUBLE_S = 300.0  # for so long faults come; then those of Airflow's side are over
ENOUGH_S = 900.0  # and after so long everything that is ill and may be treated is whole again

ILLS = ("dead", "frozen", "mute", "stuck")


class Run:
    """One DAG run after another, each of rounds by workers that know only the case's JSON."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._world, self._dice = world, dice
        self._case: Any = Case().as_json()
        self.told = dice.random() < 0.7  # whether the connection tells which brokers ought to run, and where

    def round(self) -> None:
        world = self._world
        brokers = {b: (f"host{b}", 9092) for b in world.brokers} if self.told else {}
        recoverer = Recoverer(
            ensemble=WorldEnsemble(world),
            client=WorldClient(world),
            launcher=None if world.launcher_kind == "none" else WorldLauncher(world),
            pause=WorldPause(world),
            say=lambda line: world.log.append(f"{world.now:.0f} {line}"),
            limits=Limits(total_s=300.0, grace_s=GRACE_S),
            expectation=Expectation(brokers=brokers),
            case=Case.from_json(json.loads(json.dumps(self._case))),
        )
        try:
            ended = recoverer.round() is not None
        except NotRecovered:
            ended = True
        case = Case() if ended else recoverer.case
        gap = self._dice.choice((1.0, 1.0, 5.0, 15.0))
        world.pass_time(gap)
        case.elapsed_s += 0.0 if ended else gap * self._dice.choice((0.5, 1.0))  # the way to a worker is not counted
        self._case = case.as_json()


def spoil_ways(world: World, dice: random.Random) -> None:
    """Break or restore a path between Airflow's host and the cluster."""
    chosen = dice.sample(sorted(world.ways), dice.choice((1, 1, 2, len(world.ways))))
    what = dice.choice(("out", "back", "login", "queue", "well", "well"))
    for broker in chosen:
        world.ways[broker] = Way()
        if what != "well":
            setattr(world.ways[broker], what, False)
    world.log.append(f"{world.now:.0f} ways {what} {chosen}")


def happen(world: World, dice: random.Random) -> None:
    """Let one fault happen to a healthy cluster."""
    broker = dice.choice(sorted(world.brokers))
    match dice.randrange(10):
        case 0 | 1 | 2:
            spoil_ways(world, dice)
        case 3 | 4:
            world.pause(broker, dice.uniform(1.0, PAUSE_S_MAX))
        case 5:
            world.zookeeper_reachable = not world.zookeeper_reachable
        case 6:
            world.launcher_broken = not world.launcher_broken
        case 7:
            world.skew_s = dice.choice((0.0, -600.0, 600.0))
        case 8 if world.holder is not None:
            world.vacate()  # a person, or the auto balance of another tool
        case 9:
            world.brokers[broker].cut_until = world.now + dice.uniform(5.0, 60.0)


def settle(world: World) -> None:
    """From now on everything on Airflow's side works."""
    world.zookeeper_reachable, world.launcher_broken = True, False
    world.ways = {broker: Way() for broker in world.brokers}


def play(seed: int) -> World:
    """Run the history of one seed. Raises Touched, or AssertionError if a broken broker does not come back."""
    dice = random.Random(seed)
    kind = dice.choice(("none", "start", "blind", "systemd", "full", "full"))
    world = World(seed, kind, takeover_s=dice.choice((1.0, 5.0, 30.0)))
    world.zookeeper_writable = dice.random() > 0.1
    runs = [Run(world, dice) for _ in range(dice.choice((1, 1, 2)))]
    falls_ill = {
        broker: (world.now + dice.uniform(0.0, TROUBLE_S), dice.choice(ILLS))
        for broker in dice.sample(sorted(world.brokers), dice.choice((0, 1, 1, 2)))
    }
    ill: dict[int, str] = {}
    over, busy = world.now + TROUBLE_S, dice.choice((0.0, 0.2, 0.5))
    while world.now < over:
        for broker, (at, how) in falls_ill.items():
            if world.now >= at and broker not in ill:
                ill[broker] = how
                world.make_ill(broker, how)
        if dice.random() < busy:
            happen(world, dice)
        for run in runs:
            run.round()
    settle(world)
    if not ill:
        world.pass_time(120.0)
        assert all(broker.process for broker in world.brokers.values()), "somebody was ended"
        return world
    told, enough = any(run.told for run in runs), world.now + ENOUGH_S
    while world.now < enough and not world.whole and world.launcher_kind != "none":
        for run in runs:
            run.round()
    if all(may_be_treated(world, broker, how, told) for broker, how in ill.items()):
        assert world.whole, f"seed {seed}: {ill} are not back:\n" + "\n".join(world.log[-40:])
    return world


def may_be_treated(world: World, ill: int, how: str, told: bool) -> bool:
    """Whether the rules allow any repair of that fault."""
    if how == "stuck":  # it needs no launcher; but a stuck broker may be elected again and again
        return world.zookeeper_writable and len(world.fences) < 3 and world.launcher_kind != "none"
    if not told and not any(ill in placed for placed in world.replicas.values()):
        return False  # nobody says that it ought to run
    if how == "dead":
        return world.launcher_kind != "none"
    if sum(step.kind == STOP for step in world.steps) >= rules.STOPS_PER_HOUR:
        return False  # a launcher that failed so often: an operator has to check
    if not world.zookeeper_writable or world.launcher_kind in ("none", "start"):
        return False  # a step is written down before it is taken; who hangs has to be ended first
    state = WorldEnsemble(world).partitions()
    live = {b: broker for b, broker in world.brokers.items() if broker.epoch}
    few = rules.endangered(state, live, ill, world.min_isr)
    if how == "frozen":  # who may not be found at its address is found by its own host only
        return told or world.launcher_kind == "full"
    return world.launcher_kind == "full" and not few


@pytest.mark.parametrize("tenth", [0, *(pytest.param(tenth, marks=pytest.mark.slow) for tenth in range(1, 10))])
def test_healthy_brokers_are_never_touched_and_broken_ones_come_back(tenth: int) -> None:
    for seed in range(tenth, PLAYED, 10):
        try:
            play(seed)
        except Touched as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem


def _forever(*_: object, **__: object) -> None:
    """Nothing is withheld."""


def _login_as_silence(self: WorldClient, broker: int, honest: Any = WorldClient.probe_broker) -> Probe:
    found: Probe = honest(self, broker)
    if found.wire is Wire.REFUSES:
        return replace(found, wire=Wire.SILENT)
    return replace(found, queue=Queue.SILENT) if found.queue is Queue.FORBIDDEN else found


# What recovery did before it had these rules, and what it would do with one of them forgotten.
BUGS: dict[str, list[tuple[Any, str, Any]]] = {
    "the first look is enough": [(rules.Doubt, "lasts", lambda *_: True)],
    "what the controller does in ZooKeeper is not looked at": [(WorldEnsemble, "exercise", lambda *_: False)],
    "a refused login or right is silence": [
        (WorldClient, "probe_broker", _login_as_silence),
        (WorldEnsemble, "exercise", lambda *_: False),
    ],
    "who was elected a moment ago is fenced too": [(rules, "hold_fence", _forever)],
    "one look at the brokers is enough to stop one": [(rules, "is_hung", lambda *_, **__: True)],
    "its own host is not asked": [(WorldLauncher, "host_state", lambda *_: HostState.SILENT)],
    "two at a time": [(rules, "hold_stop", _forever)],
    "min.insync.replicas is not asked": [(rules, "endangered", lambda *_: [])],
    "fencings without bound": [(rules, "FENCES_PER_HOUR", 1000)],
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, planted in BUGS[bug]:
        monkeypatch.setattr(owner, name, planted)
    for seed in range(PLAYED):
        try:
            play(seed)
        except AssertionError:
            return
    raise AssertionError(f"no seed finds it: {bug}")


def test_one_seed_is_one_history() -> None:
    assert [play(seed).log for seed in (3, 4, 5)] == [play(seed).log for seed in (3, 4, 5)]
