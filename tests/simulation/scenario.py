"""The course of one seed: a cluster, its clients, faults, and checks."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from logyard.broker.config.features import TRANSACTION_VERSION
from logyard.broker.model import TopicPartition
from tests.simulation import walkers
from tests.simulation.bankers import Banker
from tests.simulation.clients import Admin, Client, Consumer, Producer, Sending
from tests.simulation.cluster import Cluster
from tests.simulation.committed import CommittedReader
from tests.simulation.committer import Committer
from tests.simulation.faults import Faults
from tests.simulation.invariants import Rules
from tests.simulation.ledger import BrokenPromise, Ledger
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.plan import Plan
from tests.simulation.reads import Reads
from tests.simulation.team import Member, Team
from tests.simulation.tellers import Teller
from tests.simulation.trace import Trace
from tests.simulation.transfers import Fate, Transfers
from tests.simulation.walkers import Walker

STEP_S = (0.02, 0.12)
REST_EVERY = (120, 260)
REST_WITHIN_S = 60.0

TRANSACTIONAL = {Teller.topic: Teller.partitions, Banker.topic: Banker.partitions, **walkers.TOPICS}
TOPICS = {"safe": 2, "pair": 2, "loose": 1, **TRANSACTIONAL}
REPLICAS = {"safe": 3, "pair": 2, "loose": 3} | dict.fromkeys(TRANSACTIONAL, 3)
CONFIGS: dict[str, dict[str, Any]] = {"loose": {"min_insync_replicas": "1"}}
Working = Producer | Consumer | Committer | Teller | Member  # clients that go on by themselves
TELLERS = {"ann": 2, "bob": 1}  # how many tellers share the account
BANKERS = 2
SCRATCH = ("scratch-a", "scratch-b")


class Scenario:
    """`run` is everything from the first broker's start to the last comparison; raises BrokenPromise."""

    def __init__(self, seed: int, steps: int, plan: Plan, trace: Trace, loop: SimLoop, network: Network) -> None:
        name = str(seed)
        self._chance = random.Random(f"{name} steps")
        self.steps, self.plan, self.trace, self.ledger = steps, plan, trace, Ledger(keeps=not plan.beyond)
        self.cluster = Cluster(loop, network, trace, name, **plan.settings())
        self.rules = Rules(self.cluster, may_lose=plan.beyond, leaders_write=plan.leaders_write_isr)
        self.faults = Faults(self.cluster, self.rules, name, any_power_loss=plan.synced or plan.beyond)
        self._admin = Admin("admin", self.cluster, name)
        self._producers = self._make_producers(name)
        self._consumer = Consumer("consumer", self.cluster, name, self.ledger, TOPICS)
        self._committer = Committer("group", self.cluster, name)
        self._team = Team(self.cluster, name)
        self.transfers = Transfers(keeps=not self.plan.beyond)
        self._reads = Reads()
        self._tellers = self._make_tellers(name)
        self.faults.clients = [teller.process for teller in self._tellers]
        self._reader = CommittedReader("reader", self.cluster, name, self.ledger, TRANSACTIONAL, self.transfers)

    def _make_tellers(self, seed: str) -> list[Teller]:
        how: dict[str, Any] = {"hasty": self.plan.hasty, "ends_held": self.plan.ends_held}
        account = self.transfers.account
        return [
            *(
                Teller(f"{name}{n}", self.cluster, seed, account(name), **how)
                for name, count in TELLERS.items()
                for n in range(count)
            ),
            *(Banker(f"bank{n}", self.cluster, seed, account("bank"), **how) for n in range(BANKERS)),
            *(
                Walker(f"to-{to}", self.cluster, seed, account(f"to-{to}"), to=to, reads=self._reads)
                for to in walkers.TOPICS
            ),
        ]

    def _make_producers(self, seed: str) -> list[Producer]:
        def make(name: str, topic: str, pause_s: float = 0.1, **how: Any) -> Producer:
            partitions = TOPICS.get(topic, 1)
            sending = Sending(**how)
            return Producer(name, self.cluster, seed, self.ledger, topic, partitions, sending=sending, pause_s=pause_s)

        return [
            make("idem", "safe", idempotent=not self.plan.beyond),
            make("idem2", "pair", idempotent=not self.plan.beyond),
            make("plain", "safe"),
            make("plain2", "pair"),
            make("hasty", "safe", 0.15, acks=1),
            make("loose1", "loose", 0.2, acks=1, promised=False),
            make("loose2", "loose", 0.2, promised=False),
            *(make(f"scribe-{topic}", topic, 0.3, promised=False) for topic in SCRATCH),
        ]

    @property
    def _clients(self) -> list[Client]:
        return [*self._working, self._admin]

    @property
    def _working(self) -> list[Working]:
        readers = (self._consumer, self._reader)
        return [*self._producers, *readers, self._committer, *self._tellers, *self._team.members]

    # The course of events

    async def run(self) -> None:
        await self._begin()
        until_rest = self._chance.randint(*REST_EVERY)
        for step in range(self.steps):
            self._step()
            await asyncio.sleep(self._chance.uniform(*STEP_S))
            self.trace.note(f"step {step} {[m.disk.operations for m in self.cluster.machines.values()]}")
            self._look()
            until_rest -= 1
            if until_rest == 0:
                until_rest = self._chance.randint(*REST_EVERY)
                await self._rest()
        await self._end()

    async def _begin(self) -> None:
        self.cluster.start()
        await self._until(lambda: len(self.cluster.serving()) == len(self.cluster.machines), "the brokers do not start")
        for topic, partitions in TOPICS.items():
            await self._create(topic, partitions)
        if self.plan.transaction_version:
            await self._finalize(self.plan.transaction_version)
        for client in self._working:
            client.start()
        await asyncio.sleep(0.5)

    async def _finalize(self, level: int) -> None:
        """Finalize the level of transaction.version, and wait until every broker knows it."""

        def finalize() -> Any:
            return self._admin.finalize(TRANSACTION_VERSION, level)

        await self._admin.process.spawn(self._admin.surely(finalize))
        await asyncio.sleep(1.0)

    async def _create(self, topic: str, partitions: int) -> None:
        def create() -> Any:
            return self._admin.create(topic, partitions, REPLICAS[topic], **CONFIGS.get(topic, {}))

        await self._admin.process.spawn(self._admin.surely(create))

    def _step(self) -> None:
        if self._chance.random() < self.plan.fault_chance:
            self.faults.strike()
        if self._chance.random() < self.plan.change_chance:
            self._admin.process.spawn(self._change())

    def _change(self) -> Coroutine[Any, Any, Any]:
        """Let the administrator change something."""
        admin, chance = self._admin, self._chance
        topic = chance.choice(SCRATCH)
        tp = TopicPartition(chance.choice(("pair", "pair", "safe", "loose")), chance.randrange(2))
        match chance.randrange(10):
            case 0 | 1:
                return admin.create(topic, 1, chance.choice((2, 3)))
            case 2 if self.plan.has_topic_ids:  # else nobody could tell a topic from an earlier one of that name
                return admin.delete(topic)
            case 3 | 4:
                return admin.reassign(tp, chance.sample(list(self.cluster.machines), REPLICAS[tp.topic]))
            case 5:
                return admin.reassign(tp, None)
            case 6:
                return admin.set_segment_bytes(tp.topic, chance.randint(2000, 9000))
            case 7:
                read = self._consumer.position.get(tp, 0)
                return admin.delete_records(tp, chance.randint(0, read))
            case _:
                return admin.elect_preferred(tp.topic, TOPICS[tp.topic])

    def _look(self) -> None:
        self.rules.check()
        self._team.check()
        for client in self._clients:
            for failure in client.process.failures:
                raise failure

    async def _until(self, condition: Any, otherwise: str) -> None:
        if not await self.cluster.until(condition, REST_WITHIN_S):
            raise BrokenPromise(f"{otherwise} (within {REST_WITHIN_S:.0f} s)")

    async def _rest(self, *, ends: bool = False) -> None:
        """End all faults: the cluster has to become healthy, and to have kept its promises."""
        self.trace.event("rest")
        self.faults.heal()
        self._team.calm(True)
        why = ""

        def is_well() -> bool:
            nonlocal why
            self._look()
            for machine in self.cluster.machines.values():
                self.cluster.start_again(machine)  # a supervisor's part, where one could not start
            why = self.rules.unrest(ends=ends) or self._team.unrest()
            return why == ""

        if not await self.cluster.until(is_well, REST_WITHIN_S):
            raise BrokenPromise(f"no rest within {REST_WITHIN_S:.0f} s: {why}")
        self._team.calm(False)
        self.faults.rested()
        self.rules.check(whole=True)
        self.rules.compare_replicas()
        self.trace.count("stray replicas at rest", len(self.rules.strays()))
        self.trace.event("rested")

    async def _end(self) -> None:
        await self._rest()
        writers: list[Producer | Committer | Teller] = [*self._producers, self._committer, *self._tellers]
        stopping = [writer.process.spawn(writer.stopped()) for writer in writers]
        await self._until(lambda: all(task.done() for task in stopping), "writers do not come to an end")
        await self._rest(ends=True)
        if self.plan.beyond:
            self.trace.count("acknowledged records lost", self._count_lost())
            return
        await self._all_is_read()
        verifying = self._committer.process.spawn(self._committer.verified())
        await self._until(verifying.done, "the group's offset cannot be had")
        await self._settle_transfers()
        self._look()

    async def _settle_transfers(self) -> None:
        self.transfers.settle()
        self._reads.check()
        self.trace.count("walk: reads", self._reads.count)
        asking = {t.account_name: t.process.spawn(t.offset()) for t in self._tellers}
        await self._until(lambda: all(task.done() for task in asking.values()), "offsets of transactions stay open")
        for account, task in asking.items():
            self.transfers.check_offset(account, task.result())
        for fate in Fate:
            self.trace.count(f"transfers: {fate.name}", self.transfers.count(fate))

    def _count_lost(self) -> int:
        lost = 0
        for tp, promised in self.ledger.acknowledged.items():
            there = self.rules.brokers.values(tp)
            lost += sum(there.get(offset) != value for offset, value in promised.items())
        return lost

    async def _all_is_read(self) -> None:
        ends = {born.tp: self.rules.brokers.ends(born) for born, _, _ in self.rules.zookeeper.partitions()}
        high = {tp: max(watermark for _, watermark in ends[tp].values()) for tp in self._consumer.position}
        readers = (self._consumer, self._reader)
        seen: list[dict[TopicPartition, int]] = []

        def all_read() -> bool:
            self._look()
            return all(r.position[tp] >= end for r in readers for tp, end in high.items() if tp in r.position)

        # All of a consumer's fetches of one broker are answered in turn, so who is far behind needs longer.
        while not await self.cluster.until(all_read, REST_WITHIN_S):
            before, seen = seen, [dict(r.position) for r in readers]
            if seen == before:
                raise BrokenPromise(f"consumers do not reach the end: {seen}, {high}")
        self.rules.check(whole=True)
        for tp, end in high.items():
            self.ledger.settle(tp, end)
        self.ledger.check_order()

    def bury(self) -> None:
        self.cluster.bury()
        for client in self._clients:
            client.process.bury()
