"""Brokers that run out of file descriptors for a while, beside a controller that does what controllers do."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog

from logyard.broker import tasks
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import partition_state
from tests.simulation.clients import Admin
from tests.simulation.cluster import Cluster
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.trace import Trace

pytestmark = pytest.mark.simulation

WITHIN_S = 60.0


def isr(cluster: Cluster, tp: TopicPartition) -> tuple[int, tuple[int, ...]]:
    """The leader and the ISR in ZooKeeper."""
    found = cluster.tree.read(partition_state.path(tp))
    if found is None:
        return -1, ()
    state = partition_state.decode(found.data, found.version)
    return state.leader, tuple(sorted(state.isr))


async def create(cluster: Cluster, admin: Admin, name: str, replicas: tuple[int, ...]) -> None:
    while await admin.process.spawn(admin.create(name, 1, 0, [replicas])) is not ErrorCode.NONE:
        await asyncio.sleep(0.2)


async def short_of_descriptors(cluster: Cluster, admin: Admin) -> None:
    """Two replicas cannot be made: one of three, and one without which there is none."""
    cluster.start()
    assert await cluster.until(lambda: len(cluster.serving()) == 3, WITHIN_S)
    three, alone = TopicPartition("three", 0), TopicPartition("alone", 0)
    poor = cluster.machines[2]
    poor.disk.openings = 0
    await create(cluster, admin, "three", (2, 1, 3))
    await create(cluster, admin, "alone", (2,))
    assert await cluster.until(lambda: isr(cluster, three)[1] == (1, 3) and isr(cluster, alone)[0] == -1, WITHIN_S)
    await asyncio.sleep(25.0)
    assert isr(cluster, alone)[0] == -1
    poor.disk.openings = None
    assert await cluster.until(lambda: isr(cluster, three)[1] == (1, 2, 3), WITHIN_S), "it is not followed again"
    assert await cluster.until(lambda: isr(cluster, alone) == (2, (2,)), WITHIN_S), "it is not led again"


def test_what_a_broker_could_not_open_it_has_once_it_can() -> None:
    run(short_of_descriptors)


def run(history: Callable[[Cluster, Admin], Coroutine[Any, Any, None]]) -> None:
    """Play a history of three brokers without other faults."""
    trace = Trace()
    network = Network(random.Random(1), trace)
    loop = SimLoop(network, random.Random(2), trace)
    trace.now = loop.time
    configured = structlog.get_config()
    trace.capture_logs()
    asyncio.set_event_loop(loop)
    cluster: Cluster | None = None
    try:
        cluster = Cluster(loop, network, trace, "descriptors")
        loop.run_until_complete(history(cluster, Admin("admin", cluster, "descriptors")))
    finally:
        trace.over = True
        if cluster is not None:
            cluster.bury()
        asyncio.set_event_loop(None)
        loop.close()
        tasks.forget(loop)
        structlog.configure(**configured)
