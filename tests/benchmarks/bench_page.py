"""The page at 10,000 topics of 3 partitions: what a viewer waits for and is sent, and what a look costs the server.

The cluster is one in memory, which costs no network and no decoding: what is measured is the page's own work.
"""

import asyncio
import copy
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from logyard.admin.cluster.snapshot import ClusterSnapshot, NewTopic
from logyard.broker.model import Assignment, TopicPartition
from tests.benchmarks.harness import Row
from tests.support.memory_clients import MemoryClient, MemoryConnector
from tests.support.memory_cluster import MemoryCluster

TOPICS, PARTITIONS, BROKERS = 10_000, 3, 12
GROUPS = 200
VIEWERS = 50
TIMES = 9
KB = 1000

Now = Callable[[], float]


class StillCluster(MemoryClient):
    """One that does not change by being looked at, and whose looks cost nothing: two equal snapshots take turns."""

    kept: ClassVar[list[ClusterSnapshot]] = []

    def snapshot(self, *_: Any, **__: Any) -> ClusterSnapshot:
        if not StillCluster.kept:
            first = super().snapshot()
            StillCluster.kept[:] = [first, copy.deepcopy(first)]
        StillCluster.kept.reverse()
        return StillCluster.kept[0]

    def list_reassignments(self) -> dict[TopicPartition, Assignment]:
        return {}


class StillConnector(MemoryConnector):
    def cluster(self, _: Any) -> StillCluster:
        return StillCluster(self.cluster_state)


def measure(directory: Path, topics: int = TOPICS, now: Now = time.perf_counter) -> list[Row]:
    """Every row of this file; about half a minute. `now`: time.process_time for the CPU of it, on a busy machine."""
    from tests.support import page_app  # makes Airflow's home, which other benchmarks do without

    StillCluster.kept.clear()
    cluster = _cluster(topics)
    StillCluster(cluster).snapshot()
    with page_app.connections():
        clock = page_app.Clock()
        app = page_app.make_app(cluster, clock, StillConnector(cluster))
        return asyncio.run(_rows(app, clock, page_app.login("VIEWER"), cluster, now))


def _cluster(topics: int) -> MemoryCluster:
    made = MemoryCluster({broker: f"rack-{broker % 3}" for broker in range(BROKERS)})
    client = MemoryClient(made)
    for number in range(topics):
        client.create_topic(NewTopic(f"team-{number % 97:02}.orders.event-{number:05}", PARTITIONS, 3))
    made.tick()
    made.sizes = {tp: 1_000_000 + index for index, tp in enumerate(made.assignments)}
    names = sorted(made.assignments)
    for number in range(GROUPS):
        made.group_commits[f"group-{number:03}"] = dict.fromkeys(names[number * 30 : number * 30 + 30], 1)
        made.group_members[f"group-{number:03}"] = 3
    made.end_offsets = dict.fromkeys(names, 10)
    return made


async def _rows(app: Any, clock: Any, headers: dict[str, str], cluster: MemoryCluster, now: Now) -> list[Row]:
    import httpx

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://page", headers=headers, timeout=60) as client:

        async def ask(path: str, **extra: str) -> httpx.Response:
            found = await client.get(f"/api/{path}", headers=extra)
            if found.status_code not in (200, 304):
                raise RuntimeError(f"{path}: {found.status_code} {found.text[:200]}")
            return found

        await ask("connections")  # the first request of all imports what it needs
        started = now()
        first = await ask("topics")
        cold = (now() - started) * 1000
        sent = int(first.headers["content-length"])
        rows = [
            Row(
                "List of topics, first viewer, a look included", cold, "ms", note=f"{len(first.json()['rows']):,} rows"
            ),
            Row("List of topics, later viewers", await _best(lambda: ask("topics"), now), "ms", 20),
            Row("List of topics, sent", sent / KB, "kB", 250, note=f"{len(first.content) / KB:,.0f} kB unpacked"),
            Row(
                "List of topics, unchanged (304)",
                await _best(lambda: ask("topics", **{"If-None-Match": first.headers["etag"]}), now),
                "ms",
                10,
            ),
            Row("A look where nothing changed", await _look_ms(ask, clock, now), "ms", 100),
            Row("A look where one topic changed", await _changed_ms(ask, clock, cluster, now), "ms"),
        ]
        for path, name in (
            ("overview", "Overview"),
            ("brokers", "Brokers"),
            ("replicas", "Map of replicas"),
            ("sizes", "Bytes by topic"),
            ("topic?name=team-00.orders.event-00000", "One topic"),
            ("groups", "Groups, 200 of 30 partitions"),
        ):
            found = await ask(path)
            rows.append(
                Row(name, await _best(lambda p=path: ask(p), now), "ms", note=f"{len(found.content) / KB:,.1f} kB")
            )
        started = now()
        await asyncio.gather(*(ask("overview") for _ in range(VIEWERS)))
        rows.append(Row(f"{VIEWERS} viewers' overviews at once", (now() - started) * 1000, "ms"))
        return rows


async def _best(ask: Callable[..., Any], now: Now) -> float:
    times = []
    for _ in range(TIMES):
        started = now()
        await ask()
        times.append((now() - started) * 1000)
    return min(times)


async def _look_ms(ask: Callable[..., Any], clock: Any, now: Now) -> float:
    times = []
    for _ in range(TIMES):
        clock.now += 1000.0
        started = now()
        await ask("overview")
        times.append((now() - started) * 1000)
    return min(times)


async def _changed_ms(ask: Callable[..., Any], clock: Any, cluster: MemoryCluster, now: Now) -> float:
    MemoryClient(cluster).create_topic(NewTopic("new", 1, 1))
    StillCluster.kept.clear()
    StillCluster(cluster).snapshot()
    clock.now += 1000.0
    started = now()
    await ask("overview")
    return (now() - started) * 1000


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        for row in measure(Path(home)):
            print(row.text())
    print(json.dumps({"topics": TOPICS, "partitions": PARTITIONS}))
