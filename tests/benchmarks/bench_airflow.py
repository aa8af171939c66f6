"""What Logyard costs Airflow: parsing each DAG, and 500 deferred tasks in a triggerer, on a real cluster.

    python -m tests.benchmarks.bench_airflow --bootstrap 127.0.0.1:9092 [--topics 200] [--waiting 500] [--seconds 30]

Without --bootstrap the cluster is one in memory, which costs no network: then only the CPU of the waiting is real.
Prints one JSON object. Times are seconds of CPU unless they say wall.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DAGS = Path(__file__).resolve().parents[2] / "dags"


def parse_times() -> dict[str, float]:
    """CPU seconds to read each DAG file in a process of its own, after Airflow and the providers are imported."""
    script = """
import importlib.util, sys, time
import airflow.sdk, airflow.triggers.base, airflow.providers.apache.spark.operators.spark_submit
import airflow.providers.standard.operators.hitl
started = time.process_time()
spec = importlib.util.spec_from_file_location("d", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(time.process_time() - started)
"""
    found = {}
    for path in sorted(DAGS.glob("logyard_*.py")):
        command = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[path.stem] = round(float(done.stdout.split()[-1]), 3)
    return found


async def wait_many(count: int, seconds: float) -> dict[str, float]:
    """Let `count` triggers wait, four kinds of them, and count the looks that they cost."""
    from logyard.operators.triggers.cluster import BrokersUpTrigger, FullyReplicatedTrigger, TopicReadyTrigger
    from logyard.operators.triggers.offsets import ConsumerLagBelowTrigger
    from logyard.operators.triggers.watch import ClusterWatch

    common: dict[str, Any] = {
        "logyard_conn_id": "logyard_default",
        "poll_interval_s": 1.0,
        "deadline_ms": round((time.time() + 3600) * 1000),
    }
    kinds: list[Callable[[int], Any]] = [
        lambda n: TopicReadyTrigger(topic=f"absent-{n}", partitions=None, **common),
        lambda n: BrokersUpTrigger(brokers=[10_000 + n], **common),
        lambda n: FullyReplicatedTrigger(topics=None, hold_s=86_400.0, **common),
        lambda n: ConsumerLagBelowTrigger(group="absent", topics=["bench-0"], max_lag=0, **common),
    ]

    async def wait(trigger: Any) -> None:
        async for event in trigger.run():
            raise AssertionError(f"a trigger that was to wait ended: {event}")

    tasks = [asyncio.create_task(wait(kinds[n % len(kinds)](n))) for n in range(count)]
    watch = ClusterWatch.of("logyard_default")
    await asyncio.sleep(3)  # everybody has begun
    looks, cpu, wall = watch.looks, time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    looks, cpu, wall = watch.looks - looks, time.process_time() - cpu, time.monotonic() - wall
    for task in tasks:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    broken = [problem for problem in done if not isinstance(problem, asyncio.CancelledError)]
    assert not broken, broken[0]
    return {
        "waiting": count,
        "looks": looks,
        "looks_per_s": round(looks / wall, 2),
        "cpu_share": round(cpu / wall, 4),
        "cpu_ms_per_look": round(1000 * cpu / max(looks, 1), 2),
    }


def connect(bootstrap: str | None, topics: int) -> None:
    """Let `logyard_default` lead to the cluster (or to one in memory) and see that it has that many topics."""
    from logyard.admin.cluster.snapshot import NewTopic
    from logyard.operators.hooks.cluster import ClusterHook
    from tests.support.memory_clients import MemoryConnector
    from tests.support.memory_cluster import MemoryCluster

    connection = {"conn_type": "logyard", "host": bootstrap or "memory:1"}
    os.environ["AIRFLOW_CONN_LOGYARD_DEFAULT"] = json.dumps(connection)
    if bootstrap is None:
        ClusterHook.connector = MemoryConnector(MemoryCluster({1: None, 2: None, 3: None}))
    with ClusterHook().client() as client:
        there = client.snapshot().topics
        for number in range(topics):
            if f"bench-{number}" not in there:
                client.create_topic(NewTopic(f"bench-{number}", 3, 3))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap")
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--waiting", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="logyard-bench-airflow-"))
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    assert importlib.util.find_spec("airflow"), "install logyard[airflow] first"
    connect(arguments.bootstrap, arguments.topics)
    figures: dict[str, Any] = {"parse_cpu_s": parse_times(), "cluster": arguments.bootstrap or "memory"}
    for count in (1, arguments.waiting):
        figures[f"waiting_{count}"] = asyncio.run(wait_many(count, arguments.seconds))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
