"""N simulated machines around one ZooKeeper: starting, killing, pausing, cutting off, expiring."""

import asyncio
import random
from collections.abc import Callable

from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import OpResult, ZkOp
from tests.simulation.loop import SimLoop
from tests.simulation.machine import PORT, Machine, SimClock, SimZooKeeper
from tests.simulation.network import Network
from tests.simulation.process import NOBODY
from tests.simulation.trace import Trace

SESSION_TIMEOUT_S = 2.0
LOOK_S = 0.1

SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "250",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "1500",
    "controller.socket.timeout.ms": "1500",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.flush.offset.checkpoint.interval.ms": "900",
    "log.flush.start.offset.checkpoint.interval.ms": "900",
    "log.flush.interval.ms": "1500",
    "log.flush.scheduler.interval.ms": "400",
    "log.segment.bytes": "6000",
    "log.index.interval.bytes": "300",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "300",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "leader.imbalance.check.interval.seconds": "7",
    "producer.id.expiration.ms": "86400000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "http.listener": "127.0.0.1:0",
}


class SimTree(ZooKeeperTree):
    """A ZNode tree that reports every write to the rules."""

    def __init__(self, clock: SimClock, trace: Trace) -> None:
        super().__init__(clock)
        self._trace = trace
        self.wrote: Callable[[int, list[ZkOp], list[OpResult]], None] = lambda _s, _o, _r: None

    def multi(self, session_id: int, ops: "list[ZkOp]") -> list[OpResult]:  # type: ignore[override]
        results = super().multi(session_id, ops)
        self._trace.note(f"zk {session_id} {ops!r} {[r.code.name for r in results]}")
        self.wrote(session_id, list(ops), results)
        return results

    def close_session(self, session_id: int) -> None:
        self._trace.note(f"zk {session_id} closed")
        super().close_session(session_id)


class Cluster:
    """See the head of this file. Brokers are 1 to `size`."""

    def __init__(
        self, loop: SimLoop, network: Network, trace: Trace, seed: str, size: int = 3, **settings: str
    ) -> None:
        self.loop, self.network, self.trace = loop, network, trace
        self.chance = random.Random(f"{seed} cluster")
        self.tree = SimTree(SimClock(loop), trace)
        own = {key.replace("_", "."): value for key, value in settings.items()}
        self.machines = {b: Machine(b, seed, {**SETTINGS, **own}, loop, network, trace) for b in range(1, size + 1)}
        self._heard: dict[int, float] = {}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(machine.name, PORT) for machine in self.machines.values()]

    def start(self) -> None:
        """Start every broker, and ZooKeeper's watch over its sessions."""
        for machine in self.machines.values():
            machine.start(self.tree)
        self._look_at_sessions()

    def up(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_up]

    def serving(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_serving]

    def controller(self) -> Machine | None:
        """The broker that believes it is controller, if just one does."""
        active = [m for m in self.machines.values() if m.components is not None and m.components.controller.is_active]
        return active[0] if len(active) == 1 else None

    # ZooKeeper's own work

    def _look_at_sessions(self) -> None:
        """End every session whose client has been silent for the session timeout."""
        now = self.loop.now
        open_sessions = dict.fromkeys(self.tree.sessions())
        for machine in self.machines.values():
            zk = machine.zk
            if zk is not None and machine.process is not None and zk.is_connected and not machine.process.paused:
                self._heard[zk.session_id] = now
        for session in open_sessions:
            if now - self._heard.setdefault(session, now) > SESSION_TIMEOUT_S:
                self.trace.event(f"session {session} expired")
                self.trace.count("session expired by silence")
                self.tree.expire(session)
        self._heard = {s: at for s, at in self._heard.items() if s in open_sessions}
        self.loop.call_later(LOOK_S, self._look_at_sessions, context=NOBODY)

    def zookeeper_of(self, machine: Machine) -> SimZooKeeper | None:
        return machine.zk if machine.process is not None else None

    # Faults

    def start_again(self, machine: Machine) -> None:
        if machine.process is None:
            self.trace.event(f"{machine.name} starts")
            machine.start(self.tree)

    def pause(self, machine: Machine) -> None:
        if machine.process is not None:
            self.trace.event(f"{machine.name} paused")
            machine.process.pause()

    def resume(self, machine: Machine) -> None:
        if machine.process is not None and machine.process.paused:
            self.trace.event(f"{machine.name} goes on")
            machine.process.resume()

    def cut(self, a: Machine, b: Machine, *, silently: bool) -> None:
        if a.process is not None and b.process is not None:
            self.network.cut(a.process, b.process, silently=silently)

    def heal_everything(self) -> None:
        """End all faults; brokers that are down start."""
        self.network.heal_all()
        for machine in self.machines.values():
            self.resume(machine)
            if machine.disk.is_failing:
                machine.kill()  # what failed once is trusted by the next process only
            machine.disk.stop_at = None
            machine.disk.cold = False
            zk = self.zookeeper_of(machine)
            if zk is not None and not zk.is_connected:
                zk.reconnect()
            self.start_again(machine)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait in virtual time; False if the condition did not become true."""
        deadline = self.loop.now + seconds
        while not condition():
            if self.loop.now > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def bury(self) -> None:
        for machine in self.machines.values():
            machine.bury()
