"""Three brokers, random kills and elections: no record acknowledged with acks=all is lost, replicas agree."""

import asyncio
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from tests.support.disk_logs import batch, payload_of
from tests.support.replica_cluster import Cluster
from tests.support.virtual_loop import VirtualLoop

PARTITIONS = [TopicPartition("flights", n) for n in range(3)]


class Producer:
    """Writes numbered records with acks=all to whoever leads, and keeps what was acknowledged."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.number = 0
        self.acknowledged: dict[tuple[TopicPartition, int], bytes] = {}
        self.refused: dict[ErrorCode, int] = {}

    async def send(self, tp: TopicPartition, timeout_ms: int = 500) -> Any:
        self.number += 1
        payload = b"%d" % self.number
        leader = self.cluster.leader[tp]
        if leader < 0 or not self.cluster.brokers[leader].alive:
            return None
        broker = self.cluster.brokers[leader]
        found = broker.replicas.producing.append(
            [(tp, batch(1 + self.number % 3, payload))], acks=-1, timeout_ms=timeout_ms, origin=Origin.CLIENT
        )
        result = (found if isinstance(found, list) else await found)[0]
        self.refused[result.error] = self.refused.get(result.error, 0) + 1
        if result.error is ErrorCode.NONE and broker.alive:
            self.acknowledged[tp, result.base_offset] = payload
        return result.error


async def settle(cluster: Any, producer: Any) -> None:
    """Everything comes back; wait until every ISR is full again and all logs have the same end."""
    cluster.loss = 0.0
    for b in cluster.ids:
        if not cluster.brokers[b].alive:
            cluster.restart(b)
    for _ in range(400):
        await asyncio.sleep(0.1)
        if all(len(cluster.isr[tp]) == 3 for tp in PARTITIONS):
            break
    for tp in PARTITIONS:
        assert sorted(cluster.isr[tp]) == [1, 2, 3], f"{tp}: {cluster.isr[tp]} in sync"
        assert await producer.send(tp, 5000) is ErrorCode.NONE
    await asyncio.sleep(1)


def check(cluster: Any, producer: Any) -> None:
    cluster.check_prefixes()
    for tp in PARTITIONS:
        logs = [cluster.log(b, tp) for b in cluster.ids]
        assert logs[0] == logs[1] == logs[2], f"{tp}: the logs differ"
        held = {b.base: payload_of(b) for b in logs[0]}
        for (owner, offset), payload in producer.acknowledged.items():
            if owner == tp:
                assert held.get(offset) == payload, f"{tp}@{offset}: acknowledged and lost"


async def history(
    loop: VirtualLoop,
    seed: int,
    steps: int,
    **settings: Any,
) -> Any:
    cluster = Cluster(loop, seed, PARTITIONS, TopicConfig(min_insync_replicas=2), **settings)
    producer = Producer(cluster)
    sends = []
    for _ in range(steps):
        action = cluster.random.random()
        if action < 0.75:
            tp = cluster.random.choice(PARTITIONS)
            sends.append(asyncio.ensure_future(producer.send(tp)))
        elif action < 0.82 and len(cluster.live()) > 1:
            cluster.kill(cluster.random.choice(cluster.live()))
            await asyncio.sleep(cluster.random.uniform(0, 0.3))
            cluster.reelect()
        elif action < 0.92 and len(cluster.live()) < 3:
            cluster.restart(cluster.random.choice([b for b in cluster.ids if not cluster.brokers[b].alive]))
        elif action < 0.95:
            tp = cluster.random.choice(PARTITIONS)
            others = [b for b in cluster.isr[tp] if cluster.brokers[b].alive]
            if others and cluster.leader[tp] >= 0:
                cluster.elect(tp, cluster.random.choice(others), cluster.isr[tp])
                cluster.announce(cluster.live(), [tp])
        else:
            cluster.loss = cluster.random.choice([0.0, 0.0, 0.1, 0.3])
        await asyncio.sleep(cluster.random.expovariate(20))
        cluster.check_prefixes()
    await asyncio.gather(*sends)
    await settle(cluster, producer)
    check(cluster, producer)
    for broker in cluster.brokers.values():
        broker.replicas.close()
        await broker.fetchers.close()
    return producer


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    loop = VirtualLoop()
    try:
        producer = loop.run_until_complete(history(loop, seed, 150))
    finally:
        loop.close()
    assert len(producer.acknowledged) > 20, producer.refused


@pytest.mark.parametrize("seed", range(100, 104))
def test_the_same_with_offset_for_leader_epoch(seed: int) -> None:
    """An old inter-broker protocol: no lastFetchedEpoch, truncation is asked for before fetching."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(history(loop, seed, 150, truncates_on_fetch=False))
    finally:
        loop.close()


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("truncates_on_fetch", [True, False])
def test_a_follower_that_leaves_the_isr_comes_back(busy: Any, truncates_on_fetch: Any) -> None:
    """Also if nothing is written: a follower at an idle leader's end is in sync however long ago it fetched."""

    async def story(loop: VirtualLoop) -> None:
        cluster = Cluster(
            loop, 7, PARTITIONS, TopicConfig(min_insync_replicas=2), truncates_on_fetch=truncates_on_fetch
        )
        producer = Producer(cluster)
        tp = PARTITIONS[0]
        assert await producer.send(tp) is ErrorCode.NONE
        await settle(cluster, producer)
        leaver = next(b for b in cluster.ids if b != cluster.leader[tp])
        replicas = cluster.brokers[leaver].replicas
        held = cluster.log(leaver, tp)
        replicas.requests.leave_isr(tp)
        for _ in range(40):
            if busy:
                await producer.send(tp, 5000)
            await asyncio.sleep(0.1)
        assert leaver not in cluster.isr[tp]
        assert len(cluster.isr[tp]) == 2
        assert all(sorted(cluster.isr[other]) == [1, 2, 3] for other in PARTITIONS[1:])
        assert cluster.log(leaver, tp) == held, "nothing is taken in meanwhile"
        assert await producer.send(tp, 5000) is ErrorCode.NONE
        replicas.requests.follow_again(tp)
        await settle(cluster, producer)
        check(cluster, producer)
        for broker in cluster.brokers.values():
            broker.replicas.close()
            await broker.fetchers.close()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(story(loop))
    finally:
        loop.close()
