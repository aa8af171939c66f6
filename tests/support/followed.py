"""A broker that follows: real fetchers on a virtual loop, and a leader whose answers are scripted.

    async def story(f: Followed) -> None:
        f.leader.script = [[answer(records=stored(0, 0), hw=1)]]  # the next answers, or errors to raise
        f.follow()  # broker 1 follows T0 of broker 2
        await asyncio.sleep(0.1)
        assert f.log().log_end_offset == 1

    run(loop, story)

`f.leader.asked` has the requests and `times` when they came; `epochs`, `ends` and `starts` are what look-ups find.
`f.leaders` are other leaders by broker, `f.progressed` the partitions that took something in.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import (
    EpochAnswer,
    EpochQuery,
    FetchedPartition,
    FollowerFetch,
    FollowerFetchAnswer,
    OffsetAnswer,
    OffsetQuery,
)
from logyard.broker.replication.follower.fetcher_manager import ReplicaFetchers
from tests.support.disk_logs import ReplicaLog
from tests.support.replica_world import T0, World
from tests.support.virtual_loop import VirtualLoop


class Leader:
    """A link whose answers are scripted.

    Each is a FollowerFetchAnswer, an error to raise, or a list of answers; `answering`, where it is set, makes the list
    of the request when the script is at its end.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.script: list[Any] = []
        self.answering: Callable[[FollowerFetch], Sequence[FetchedPartition]] = lambda request: ()
        self.asked: list[FollowerFetch] = []
        self.times: list[float] = []
        self.epochs: dict[int, tuple[ErrorCode, int, int]] = {}
        self.ends: dict[TopicPartition, tuple[Any, ...]] = {}
        self.starts: dict[TopicPartition, tuple[Any, ...]] = {}

    async def fetch(self, request: FollowerFetch) -> FollowerFetchAnswer:
        self.asked.append(request)
        self.times.append(self.loop.time())
        if not self.script:
            made = self.answering(request)
            await asyncio.sleep(0.001 if made else request.max_wait_ms / 1000)
            return FollowerFetchAnswer(ErrorCode.NONE, 7, made)
        await asyncio.sleep(0.001)
        answer = self.script.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, FollowerFetchAnswer) else FollowerFetchAnswer(ErrorCode.NONE, 7, answer)

    async def list_offsets(self, queries: Sequence[OffsetQuery]) -> list[OffsetAnswer]:
        await asyncio.sleep(0.001)
        known = self.ends if queries[0].timestamp == -1 else self.starts
        return [OffsetAnswer(q.tp, *known[q.tp]) for q in queries]

    async def offsets_for_leader_epoch(self, queries: Sequence[EpochQuery]) -> list[EpochAnswer]:
        await asyncio.sleep(0.001)
        return [EpochAnswer(q.tp, *self.epochs[q.epoch]) for q in queries]


class Followed:
    """Broker 1 following broker 2 on a virtual loop."""

    def __init__(self, loop: VirtualLoop, **settings: Any) -> None:
        self.loop = loop
        self.world = World(**settings)
        self.leader = Leader(loop)
        self.leaders: dict[int, Leader] = {}  # others, by broker
        self.progressed: list[TopicPartition] = []
        self.fetchers = ReplicaFetchers(
            lambda broker: self.leaders.get(broker, self.leader),
            self.world.replicas.settings,
            self.world.replicas.counters,
            lambda: int(loop.time() * 1000),
            lambda: 55,
            lambda partition: self.progressed.append(partition.tp),
            loop,
        )
        self.world.replicas.use_fetchers(self.fetchers)

    def log(self, tp: TopicPartition = T0) -> ReplicaLog:
        return self.world.log(tp)

    def follow(self, tp: TopicPartition = T0, leader_epoch: int = 0, **fields: Any) -> None:
        self.world.tell(self.world.order(tp, leader=2, leader_epoch=leader_epoch), **fields)


def run(loop: VirtualLoop, story: Any, **settings: Any) -> None:
    async def told() -> None:
        followed = Followed(loop, **settings)
        await story(followed)
        await followed.fetchers.close()

    loop.run_until_complete(told())


def answer(
    tp: TopicPartition = T0,
    records: bytes = b"",
    hw: int = 0,
    start: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    **fields: Any,
) -> Any:
    return FetchedPartition(tp, error, hw, hw, start, records, **fields)
