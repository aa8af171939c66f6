"""What a recoverer has of a `World`: its client, ensemble, launcher and pause, and nothing else of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.ports import AccessRefused, ClusterUnreachable, EnsembleUnreachable, PartitionsView
from logyard.admin.recovery.witnesses import FENCE, ControllerView, HostState, Journal, Probe, Queue, Step, Wire
from logyard.broker.errors import LogyardError
from logyard.broker.model import Assignment, BrokerInfo, Endpoint
from tests.support.recovery_world import Broker, Touched, World


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
