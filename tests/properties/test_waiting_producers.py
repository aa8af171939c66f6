"""Whatever holds the high watermark back also wakes it.

Under any history of fetches, of partitions that sessions forget, of ISR changes, deaths and time, it is where Kafka's
rule, applied again at every moment, would put it. The model is that rule alone: every request of a session is a fetch
of each partition in the session, with the parameters of the last request for it (facts §10). It has no heartbeats, no
quiet partitions and no timers.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.replication.events import FetchParams, Isolation, PartitionFetch
from logyard.broker.replication.fetch.sessions import FetchSessions
from logyard.broker.replication.ports import IsrChangeResult
from tests.support.replica_world import T0, T1, Pending, World, produce

LAG_MS = 100
NEVER = -(10**9)
FOLLOWERS = (2, 3)

Step = tuple[Any, ...]  # what is done, and its figures

ISRS = ((1,), (1, 2), (1, 3), (1, 2, 3))


def history(seed: int, steps: int = 80) -> Iterator[Step]:
    """Steps as in a cluster: mostly requests of followers that are up to date."""
    chance = random.Random(seed)
    for _ in range(steps):
        follower = chance.choice(FOLLOWERS)
        yield chance.choices(
            (
                ("produce", chance.choice((-1, -1, 1))),
                ("ask", follower, chance.choice((0, 0, 0, 1, 2)), chance.random() < 0.8, chance.random() < 0.2),
                ("idle", follower),
                ("forget", follower),
                ("pass", chance.choice((10, 10, 60, 120))),
                ("answer", chance.choice(("accept", "refuse", "wait"))),
                ("alive", chance.choice(((1, 2, 3), (1, 2), (1, 3)))),
                ("elect", chance.choice(ISRS)),
            ),
            (4, 6, 4, 1, 4, 2, 4, 1),
        )[0]


@dataclass
class Modelled:
    """A follower as Kafka's leader tracks it, and the parameters in its session."""

    end: int = -1
    caught_up_ms: int = NEVER
    fetched_ms: int = NEVER
    leader_end_then: int = -1
    is_refused: bool = False
    asked: tuple[int, int] | None = None  # (offset, leader epoch)

    def fetched(self, leader_epoch: int, leader_end: int, now_ms: int) -> None:
        """A request of its session has come."""
        if self.asked is None or self.asked[1] != leader_epoch:
            return
        self.end = self.asked[0]
        if self.end >= leader_end:
            self.caught_up_ms = now_ms
        elif self.end >= self.leader_end_then:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.fetched_ms, self.leader_end_then = now_ms, leader_end


class Session:
    """A follower's fetch session with the leader; T1 keeps it alive when it forgets T0."""

    def __init__(self, world: World, sessions: FetchSessions, follower: int) -> None:
        self.world, self.sessions = world, sessions
        self.params = FetchParams(0, 1, 10**6, follower, isolation=Isolation.LOG_END)
        self.id = self.epoch = 0

    def request(self, *asks: PartitionFetch, forgotten: Sequence[tuple[str, int]] = (), anew: bool = False) -> None:
        if anew or self.id == 0:
            self.epoch, asks = 0, (*asks, PartitionFetch(T1, 0, 10**6))
        context = self.sessions.open(self.params, self.id, self.epoch, asks, forgotten, uses_topic_ids=False)
        answers = self.world.replicas.fetching.fetch(self.params, context.source)
        assert isinstance(answers, list), "it asks without waiting"
        error, self.id, _ = context.finish(answers)
        assert error is ErrorCode.NONE
        self.epoch += 1


class History:
    """Drives one leader and the model beside it."""

    def __init__(self, min_isr: int) -> None:
        self.world = World(lag_time_max_ms=LAG_MS)
        self.world.config = TopicConfig(min_insync_replicas=min_isr)
        self.world.replicas.start()
        sessions = FetchSessions(self.world.replicas.hosted, itertools.count(1).__next__)
        self.sessions = {follower: Session(self.world, sessions, follower) for follower in FOLLOWERS}
        self.model = {follower: Modelled() for follower in FOLLOWERS}
        self.alive: tuple[int, ...] = (1, 2, 3)
        self.epoch = self.watermark = 0
        self.waiting: list[tuple[int, Pending]] = []
        self.world.tell(self.world.order(), self.world.order(T1))
        self.elect((1, 2, 3))

    @property
    def partition(self) -> Any:
        return self.world.replicas.partition(T0)

    @property
    def now_ms(self) -> int:
        return self.world.replicas.hosted.now_ms()

    def do(self, step: Step) -> None:
        match step:
            case "produce", acks:
                result = produce(self.world, acks=acks, timeout_ms=1000)
                if not isinstance(result, list):
                    self.waiting.append((self.partition.log.log_end_offset, result))
            case "ask", follower, behind, knows, anew:
                self.ask(follower, behind, self.epoch if knows else max(0, self.epoch - 1), anew)
            case "idle", follower if self.sessions[follower].id:
                self.request(follower)
            case "forget", follower if self.model[follower].asked is not None:
                self.model[follower].asked = None
                self.request(follower, forgotten=((T0.topic, T0.partition),))
            case "answer", kind if self.world.submitted:
                self.answer(kind)
            case "alive", brokers:
                for gone in set(self.alive) - set(brokers):
                    self.model[gone].is_refused = False
                self.alive = brokers
                self.world.hear(brokers)
            case "elect", isr:
                self.elect(isr)

    def ask(self, follower: int, behind: int, epoch: int, anew: bool) -> None:
        """Ask for T0; a follower that was never asked holds what its log holds, never less than before."""
        model = self.model[follower]
        held = max(0, model.end, model.asked[0] if model.asked else 0)
        offset = max(held, self.partition.log.log_end_offset - behind)
        model.asked = (offset, epoch)
        self.request(follower, PartitionFetch(T0, offset, 10**6, leader_epoch=epoch), anew=anew)

    def request(self, follower: int, *asks: PartitionFetch, **fields: Any) -> None:
        self.model[follower].fetched(self.epoch, self.partition.log.log_end_offset, self.now_ms)
        self.sessions[follower].request(*asks, **fields)

    def answer(self, kind: str) -> None:
        change = self.world.submitted.pop(0)
        mine = self.partition.isr.pending is not None and change.leader_epoch == self.epoch
        if kind == "accept":
            change.accept()
            if mine:
                for one in self.model.values():
                    one.is_refused = False
        else:
            code = ErrorCode.INELIGIBLE_REPLICA if kind == "refuse" else ErrorCode.INVALID_UPDATE_VERSION
            change.callback(IsrChangeResult(code))
            if mine and kind == "refuse":
                for follower in set(change.new_isr) - set(self.partition.isr.committed):
                    self.model[follower].is_refused = True

    def elect(self, isr: tuple[int, ...]) -> None:
        self.epoch += 1
        end, now = self.partition.log.log_end_offset, self.now_ms
        for follower, one in self.model.items():
            member = follower in isr
            one.caught_up_ms = one.fetched_ms = now if member else NEVER
            one.leader_end_then = end if member else -1
            one.is_refused = False
        epoch = self.partition.partition_epoch + 1
        self.world.tell(self.world.order(leader_epoch=self.epoch, isr=isr, partition_epoch=epoch))

    def check(self, said: str) -> None:
        """The rule, applied to this moment."""
        partition, now = self.partition, self.now_ms
        log, isr = partition.log, partition.isr
        if len(isr.committed) >= partition.min_isr:
            ends = [log.log_end_offset]
            for follower, one in self.model.items():
                joining = not one.is_refused and follower in self.alive and now - one.caught_up_ms <= LAG_MS
                if follower in isr.maximal or joining:
                    ends.append(one.end)
            self.watermark = max(self.watermark, min(ends))
        if log.high_watermark != self.watermark:
            self.world.advance(2)  # milliseconds are whole numbers: a timer may come one of them late
        assert log.high_watermark == self.watermark, f"the watermark stands elsewhere than the rule has it, {said}"
        for required, pending in self.waiting:
            assert pending.done() or required > self.watermark, f"a producer waits for nobody, {said}"


@pytest.mark.parametrize("seeds", [range(start, start + 150) for start in (0, 150, 300, 450)], ids=lambda s: str(s[0]))
def test_the_high_watermark_matches_the_model_at_every_step(seeds: range) -> None:
    for seed in seeds:
        told = History(min_isr=1 + seed % 2)
        for number, step in enumerate(history(seed)):
            said = f"seed {seed}, step {number}: {step}"
            if step[0] == "pass":
                for _ in range(step[1] // 10):
                    told.world.advance(10)
                    told.check(said)
            else:
                told.do(step)
                told.check(said)
        told.world.replicas.close()
