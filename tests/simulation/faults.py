"""The faults, and when they happen: drawn from the seed, within the budget for which the promises hold.

The budget: processes may die, also in the middle of a write, and be paused, cut off and expired without limit. Unsynced
pages are lost on one machine at a time: the next may lose its power only once every partition's whole ISR has caught up
again. And while a machine that lost pages is still in some ISR, nothing else is broken: if all the others died before
the controller removes it, it would rightly be elected, with less than was acknowledged (Kafka's own weakness, KIP-966).
Nor is power lost right after the end of another's session: a controller that takes over meanwhile sees that other one
as restarted, takes it out of the ISR, and leaves the one without its pages alone in there, as Kafka's does.
If all topics are flushed with every message, power may be lost at any time.
"""

import random
from collections.abc import Callable

from tests.simulation.cluster import SESSION_TIMEOUT_S, Cluster
from tests.simulation.invariants import Rules
from tests.simulation.machine import Machine
from tests.simulation.process import Process

UNSEEN_WEIGHT = 10  # a kind that has not been yet is drawn so many times as often: a long run meets them all
SHORT_S = (0.05, 0.8)
# How far a wall clock is set: seconds to hours, of which a retention of days must not notice.
CLOCK_STEPS_MS = (15_000, 3_600_000, 6 * 3_600_000)
LOOK_S = 0.01
SESSION_SEEN_S = 5.0  # by then a controller that has just taken over has seen whose session ended
HELD_S = (1.0, 8.0)  # around the time after which clients give a request up
LONG_S = (1.0, 2.5 * SESSION_TIMEOUT_S)


KINDS = (
    "kill",
    "kill in a disk operation",
    "power loss",
    "stop",
    "pause",
    "link cut",
    "broker isolated",
    "cut from ZooKeeper",
    "session expired",
    "reply lost",
    "request held",
    "slow network",
    "slow disk",
    "deposed with a slow disk",
    "directory failed",
    "all killed",
    "clock set",
)


class Faults:
    """`strike` starts one fault, and ends it later. `any_power_loss`: power losses have no budget."""

    def __init__(self, cluster: Cluster, rules: Rules, seed: str, *, any_power_loss: bool) -> None:
        self._cluster, self._rules, self._any_power_loss = cluster, rules, any_power_loss
        self._session_ended_s = -SESSION_SEEN_S  # when a fault last ended one
        self._chance = random.Random(f"{seed} faults")
        self._lost_pages: Machine | None = None
        self._era = 0
        self._standing = 0
        self.clients: list[Process] = []  # whose requests may be held back
        self.kinds: dict[str, tuple[int, Callable[[], bool]]] = {
            "kill": (5, self._kill),
            "kill in a disk operation": (5, self._kill_in_write),
            "power loss": (5, self._power_loss),
            "stop": (3, self._stop),
            "pause": (5, self._pause),
            "link cut": (4, self._cut),
            "broker isolated": (3, self._isolate),
            "cut from ZooKeeper": (4, self._cut_from_zookeeper),
            "session expired": (3, self._expire),
            "reply lost": (4, self._lose_reply),
            "request held": (3, self._hold_request),
            "slow network": (2, self._slow),
            "slow disk": (2, self._slow_disk),
            "deposed with a slow disk": (6, self._depose_slow),
            "directory failed": (2, self._fail_directory),
            "all killed": (1, self._kill_all),
            "clock set": (8, self._set_clock),
        }

    def strike(self) -> None:
        """One fault, if the budget allows the one that is drawn."""
        if self._lost_pages is not None and not self._any_power_loss and not self._absorbed(self._lost_pages):
            return
        (name,) = self._chance.choices(list(self.kinds), [self.weight(kind) for kind in self.kinds])
        if self.kinds[name][1]():
            self._cluster.trace.count(f"fault: {name}")

    def weight(self, kind: str) -> int:
        weight, _ = self.kinds[kind]
        return weight if self._cluster.trace.counts[f"fault: {kind}"] else UNSEEN_WEIGHT * weight

    def heal(self) -> None:
        """End all faults at once, and cancel their later ends."""
        self._era += 1
        self._standing = 0
        self._cluster.heal_everything()

    def rested(self) -> None:
        """Every ISR is whole again."""
        self._lost_pages = None

    # The budget

    def _absorbed(self, machine: Machine) -> bool:
        """Whether no ISR counts on the machine that lost pages, but those it has joined since."""
        if self._rules.unrest() == "":
            self._lost_pages = None
            return True
        return all(state is None or machine.id not in state.isr for _, _, state in self._rules.zookeeper.partitions())

    def _may_lose_power(self, machine: Machine) -> bool:
        if self._any_power_loss:
            return True
        if self._cluster.loop.time() < self._session_ended_s + SESSION_SEEN_S:
            return False
        return self._lost_pages is None and self._standing == 0 and self._rules.unrest() == ""

    # Helpers

    def _later(self, seconds: float, work: Callable[..., None]) -> None:
        """When a fault that stands until then ends."""
        era = self._era
        self._standing += 1

        def end() -> None:
            if self._era == era:
                self._standing -= 1
                work()

        self._cluster.loop.call_later(seconds, end)

    def _duration(self) -> float:
        return self._chance.uniform(*self._chance.choice((SHORT_S, LONG_S)))

    def _any(self) -> Machine | None:
        up = self._cluster.up()
        controller = self._cluster.controller()
        if controller is not None and self._chance.random() < 0.25:
            return controller
        return self._chance.choice(up) if up else None

    def _two(self) -> list[Machine]:
        up = self._cluster.up()
        return self._chance.sample(up, 2) if len(up) > 1 else []

    def _restart_later(self, machine: Machine) -> None:
        self._later(self._duration(), lambda: self._cluster.start_again(machine))

    # The faults; each says whether it happened

    def _kill(self) -> bool:
        machine = self._any()
        if machine is None:
            return False
        machine.kill()
        self._restart_later(machine)
        return True

    def _kill_all(self) -> bool:
        for machine in self._cluster.up():
            machine.kill()
            self._restart_later(machine)
        return True

    def _kill_in_write(self) -> bool:
        machine = self._any()
        if machine is None or machine.disk.stop_at is not None:
            return False
        machine.disk.stop_at = machine.disk.operations + self._chance.randint(1, 40)
        self._later(LONG_S[1], lambda: self._cluster.start_again(machine))
        return True

    def _power_loss(self) -> bool:
        machine = self._any()
        if machine is None or not self._may_lose_power(machine):
            return False
        self._lost_pages = machine
        machine.kill(power=True)
        self._restart_later(machine)
        return True

    def _stop(self) -> bool:
        machine = self._any()
        if machine is None or not machine.is_serving:
            return False
        self._cluster.trace.event(f"{machine.name} is told to stop")
        machine.stop()
        self._later(LONG_S[1], lambda: self._cluster.start_again(machine))
        return True

    def _pause(self) -> bool:
        machine = self._any()
        if machine is None or machine.process is None or machine.process.paused:
            return False
        self._cluster.pause(machine)
        self._later(self._duration(), lambda: self._cluster.resume(machine))
        return True

    def _cut(self) -> bool:
        two = self._two()
        if not two:
            return False
        a, b = two
        silently = self._chance.random() < 0.5
        self._cluster.trace.event(f"{a} and {b} are cut off from each other, silently={silently}")
        self._cluster.cut(a, b, silently=silently)
        self._later(self._duration(), lambda: self._cluster.network.heal(a.name, b.name))
        return True

    def _isolate(self) -> bool:
        machine = self._any()
        if machine is None:
            return False
        silently = self._chance.random() < 0.5
        self._cluster.trace.event(f"{machine} is cut off from the other brokers, silently={silently}")
        seconds = self._duration()
        for other in self._cluster.up():
            if other is not machine:
                self._cluster.cut(machine, other, silently=silently)
                self._later(seconds, lambda name=other.name: self._cluster.network.heal(machine.name, name))
        return True

    def _cut_from_zookeeper(self) -> bool:
        machine = self._any()
        zk = machine.zk if machine is not None else None
        if machine is None or machine.process is None or zk is None or not zk.is_connected:
            return False
        self._cluster.trace.event(f"{machine} is cut off from ZooKeeper")
        zk.disconnect()
        process = machine.process

        def mend() -> None:
            if machine.process is process and not zk.is_connected:
                self._cluster.trace.event(f"{machine} reaches ZooKeeper again")
                zk.reconnect()

        self._later(self._duration(), mend)
        return True

    def _expire(self) -> bool:
        machine = self._any()
        return machine is not None and self._end_session(machine)

    def _end_session(self, machine: Machine) -> bool:
        zk = machine.zk
        if zk is None or not self._cluster.tree.is_open(zk.session_id):
            return False
        self._cluster.trace.event(f"{machine}'s session ends")
        self._session_ended_s = self._cluster.loop.time()
        self._cluster.tree.expire(zk.session_id)
        return True

    def _lose_reply(self) -> bool:
        controller = self._cluster.controller()
        machine = controller if controller is not None and self._chance.random() < 0.7 else self._any()
        if machine is None or machine.zk is None:
            return False
        machine.zk.lose_replies(self._chance.randint(1, 3))
        return True

    def _hold_request(self) -> bool:
        """What one client sends on one connection arrives when it has long been given up: TCP tries for minutes."""
        open_ones = [transport for client in self.clients for transport in client.transports if not transport.held]
        if not open_ones:
            return False
        transport = self._chance.choice(open_ones)
        transport.held = True
        self._cluster.trace.event(f"{transport.process.name}'s requests to {transport.peer.process.name} are held")
        # Without an era: a packet is sent again whatever an administrator mends.
        self._cluster.loop.call_later(self._chance.uniform(*HELD_S), transport.release)
        return True

    def _slow(self) -> bool:
        self._cluster.network.slowness = self._chance.choice((10.0, 60.0, 200.0))
        self._later(self._duration(), self._fast)
        return True

    def _fast(self) -> None:
        self._cluster.network.slowness = 1.0

    def _slow_disk(self) -> bool:
        """Reads are never in the page cache."""
        machine = self._any()
        if machine is None or machine.disk.cold:
            return False
        self._chill(machine, self._duration())
        return True

    def _chill(self, machine: Machine, seconds: float) -> None:
        machine.disk.cold = True
        self._later(seconds, lambda: setattr(machine.disk, "cold", False))

    def _when_looking_up(self, machine: Machine, looks: int) -> None:
        """End the machine's session once one of its threads stands still behind its log's high watermark."""
        process = machine.process
        if process is not None and machine.disk.cold and looks:
            if any(work.is_looking_up for work in process.standing):
                self._end_session(machine)
            else:
                self._cluster.loop.call_later(LOOK_S, self._when_looking_up, machine, looks - 1)

    def _depose_slow(self) -> bool:
        """Others lead its partitions: it cuts its logs while earlier requests still wait for its disk."""
        machine = self._any()
        if machine is None or machine.disk.cold or not machine.is_serving:
            return False
        self._chill(machine, LONG_S[1])
        self._when_looking_up(machine, int(LONG_S[1] / LOOK_S))
        return True

    def _fail_directory(self) -> bool:
        machine = self._any()
        if machine is None or not machine.is_serving:
            return False
        path = f"/{machine.name}/{self._chance.choice(('one', 'two'))}"
        self._cluster.trace.event(f"{path} fails")
        machine.disk.fail(path)

        def replace() -> None:
            machine.kill()
            self._cluster.start_again(machine)

        self._later(self._duration(), replace)
        return True

    def _set_clock(self) -> bool:
        """Set the wall clock of a machine, for good: only elapsed time may be measured."""
        machine = self._chance.choice(list(self._cluster.machines.values()))
        machine.clock.error_ms = self._chance.choice((-1, 1)) * self._chance.choice(CLOCK_STEPS_MS)
        self._cluster.trace.event(f"{machine}'s wall clock is wrong by {machine.clock.error_ms} ms")
        return True
