"""A cluster in memory, as its callers can see it (facts §3, §5, §6).

    cluster = MemoryCluster({1: "a", 2: "b", 3: None}, ticks_to_move=8)  # brokers and their racks
    client = MemoryClient(cluster)  # memory_clients.py; MemoryConnector(cluster) for who opens clients itself
    client.create_topic(NewTopic("t", assignment={0: (1, 2)}))
    cluster.kill(1)
    cluster.tick()

Elections among the ISR, epochs, reassignments that take a while, sessions that expire some time after a process
died. Nothing moves by itself: `tick` does, and so does every look and sleep of a MemoryConnector's clients. The fields
are the truth: a test sets them (`hung`, `deaf`, `electing`) and reads them (`started`, `stopped`, `steps`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from logyard.admin.acls.acls import Acl
from logyard.admin.cluster.snapshot import TopicView
from logyard.admin.ports import Quorum
from logyard.admin.recovery.witnesses import Step
from logyard.admin.transactions.transactions import Producer, Transaction
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import Assignment, PartitionState, TopicPartition
from tests.support.tree_znodes import TreeZnodes

PATIENCE_TICKS = 20


@dataclass
class MemoryCluster:
    """The state that clients, ensembles and launchers made from one connector share."""

    racks: dict[int, str | None]
    ticks_to_move: int = 2
    ticks_to_expire: int = 2
    ticks_to_catch_up: int = 1
    ticks_to_delete: int = 0
    running: set[int] = field(default_factory=set)  # processes
    sessions: dict[int, int] = field(default_factory=dict)  # broker → ticks left once the process is gone (-1: alive)
    controller: int | None = None
    epoch: int = 0
    epoch_garbled: bool = False
    zxid: int = 100
    now_ms: int = 10_000_000  # ZooKeeper's clock
    elected: int = -1  # the czxid of /controller
    elected_ms: int = 0
    registered: dict[int, int] = field(default_factory=dict)  # broker → its epoch
    steps: list[Step] = field(default_factory=list)  # of recoveries
    hung: set[int] = field(default_factory=set)
    deaf: set[int] = field(default_factory=set)  # brokers that not even a new controller can tell anything
    beliefs: dict[int, int] = field(default_factory=dict)  # broker → whom it takes for the controller, wrongly
    electing: bool = True
    cluster_id: str = "memory"
    busy: bool = False  # the controller answers, and does not come to its work yet
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    assignments: dict[TopicPartition, Assignment] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)  # of topics that were created by a request
    unheard: set[str] = field(default_factory=set)  # topics that only the controller's broker knows yet
    unmet: set[int] = field(default_factory=set)  # brokers of which only the controller's knows yet that they are back
    outdated: dict[str, TopicView] = field(default_factory=dict)  # as the other brokers still know these names
    deleting: dict[str, int] = field(default_factory=dict)  # topic that Metadata has no longer → ticks until its end
    broker_config: dict[int, dict[str, str]] = field(default_factory=dict)
    broker_defaults: dict[str, str] = field(default_factory=dict)  # the settings of all brokers
    moving: dict[TopicPartition, int] = field(default_factory=dict)
    returning: dict[int, int] = field(default_factory=dict)
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    log_dirs: dict[tuple[str, int, int], str] = field(default_factory=dict)
    disks: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)  # (broker, path) → total, usable
    group_members: dict[str, int] = field(default_factory=dict)
    group_topics: dict[str, tuple[str, ...]] = field(default_factory=dict)  # those assigned to its members
    group_commits: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    end_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    batches: dict[TopicPartition, list[bytes]] = field(default_factory=dict)  # whole ones, in the order of offsets
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    record_times: dict[TopicPartition, int] = field(default_factory=dict)  # of the last record; without it: long ago
    started: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    znodes: TreeZnodes = field(default_factory=TreeZnodes)  # what only ZooKeeper has: groups of the first consumers
    producers: dict[TopicPartition, list[Producer]] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    quorum: Quorum | None = None  # of a KRaft cluster
    authorizer: bool = True
    acls: set[Acl] = field(default_factory=set)
    users: dict[tuple[str, str], NewPassword] = field(default_factory=dict)  # by user and mechanism
    quotas: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, float]] = field(default_factory=dict)
    looks: int = 0

    def __post_init__(self) -> None:
        self.running = set(self.racks)
        self.sessions = dict.fromkeys(self.racks, -1)
        self.registered = dict.fromkeys(self.racks, self.zxid)
        self._elect()
        self.elected_ms = 0  # long ago

    def tick(self) -> None:
        """Let some time pass: sessions expire, a controller is elected, replicas catch up, moves end."""
        for broker, left in sorted(self.sessions.items()):
            if left > 0:
                self.sessions[broker] = left - 1
            elif left == 0:
                self._expire(broker)
        if self.controller is None and self.electing and not self.epoch_garbled:
            self._elect()
        if self.controller in self.running and self.controller not in self.hung and not self.busy:
            self._control()

    def kill(self, broker: int) -> None:
        """kill -9: the process is gone now, its session after `ticks_to_expire` ticks."""
        self.running.discard(broker)
        self.sessions[broker] = self.ticks_to_expire

    def restart(self, broker: int) -> None:
        """kill -9 and a new start, each followed by enough time: the broker leads nothing then, and lacks nothing."""
        for step in (self.kill, self.start):
            step(broker)
            for _ in range(3):
                self.tick()

    def stop(self, broker: int) -> None:
        """End whatever is left of a broker's process, hung or not."""
        self.stopped.append(broker)
        self.running.discard(broker)
        if broker in self.sessions:
            self.sessions[broker] = min(self.ticks_to_expire, max(self.sessions[broker], 0) or self.ticks_to_expire)

    def start(self, broker: int) -> None:
        """Start a broker's process; it cannot register while its old session stands (facts §1)."""
        self.started.append(broker)
        if broker in self.running:
            raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"the old process of broker {broker} has its port")
        if broker in self.sessions:
            raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"broker {broker} is registered already")
        self.running.add(broker)
        self.hung.discard(broker)
        self.deaf.discard(broker)
        self.beliefs.pop(broker, None)
        self.sessions[broker] = -1
        self.zxid += 1
        self.registered[broker] = self.zxid
        self.returning[broker] = self.ticks_to_catch_up

    def live(self) -> list[int]:
        return sorted(self.sessions)

    def told_moves(self) -> dict[TopicPartition, Assignment] | None:
        """The moves that run, as the controller tells them; None: none answers."""
        if self.controller not in self.running - self.hung:
            return None
        return {tp: a for tp, a in sorted(self.assignments.items()) if a.is_reassigning}

    def awaited_moves(self) -> dict[TopicPartition, Assignment]:
        """The same, asked until a client's patience is over."""
        for _ in range(PATIENCE_TICKS):
            if (told := self.told_moves()) is not None:
                return told
            self.tick()
        raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")

    def heard(self, topics: Sequence[str] | None) -> tuple[list[str], list[str]]:
        """Of the named topics (None: all) those that any broker knows of, and those that are certainly gone."""
        known = [name for name in sorted(self.configs) if topics is None or name in topics]
        if self.controller in self.running - self.hung and topics is not None:
            return known, [name for name in topics if name not in self.configs]
        return [name for name in known if name not in self.unheard], []

    # -- what a controller does -----------------------------------------------------------------------

    def _elect(self) -> None:
        candidates = [b for b in self.live() if b in self.running and b not in self.hung]
        if candidates:
            self.controller, self.epoch, self.zxid = candidates[0], self.epoch + 1, self.zxid + 1
            self.elected, self.elected_ms = self.zxid, self.now_ms
            self.beliefs = {b: self.beliefs[b] for b in self.deaf & set(self.beliefs)}

    def _expire(self, broker: int) -> None:
        del self.sessions[broker]
        if self.controller == broker:
            self.controller = None

    def _control(self) -> None:
        live = set(self.live())
        self.deleting = {name: left - 1 for name, left in self.deleting.items() if left > 1}
        for broker in sorted(self.returning):
            self.returning[broker] -= 1
            if self.returning[broker] <= 0:
                del self.returning[broker]
        for tp, placed in sorted(self.assignments.items()):
            self._lead(tp, placed, live)
        for tp in sorted(self.moving):
            self.moving[tp] -= 1
            if self.moving[tp] <= 0:
                self._finish(tp)

    def _lead(self, tp: TopicPartition, placed: Assignment, live: set[int]) -> None:
        state = self.states.get(tp) or PartitionState(
            -1, -1, tuple(r for r in placed.replicas if r in live), self.epoch
        )
        caught_up = [r for r in placed.replicas if r in live and r not in self.returning and r not in placed.adding]
        isr = tuple(r for r in placed.replicas if r in live and (r in state.isr or r in caught_up))
        kept = tuple(r for r in isr if r not in placed.adding or r in state.isr) or state.isr
        leader = (
            state.leader
            if state.leader in kept and state.leader in live
            else next((r for r in placed.replicas if r in kept and r in live), -1)
        )
        if (leader, kept) != (state.leader, state.isr) or tp not in self.states:
            self.states[tp] = state._replace(
                leader=leader, isr=kept, leader_epoch=state.leader_epoch + 1, controller_epoch=self.epoch
            )

    def _finish(self, tp: TopicPartition) -> None:
        placed, state = self.assignments[tp], self.states[tp]
        if not set(placed.target) <= set(self.live()):
            return
        del self.moving[tp]
        self.assignments[tp] = Assignment(placed.target)
        leader = state.leader if state.leader in placed.target else placed.target[0]
        self.states[tp] = state._replace(leader=leader, isr=placed.target, leader_epoch=state.leader_epoch + 1)
