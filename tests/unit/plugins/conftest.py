"""Airflow's home for these tests (set before anything imports Airflow), and a cluster in memory."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.needed import lacks
from tests.support.page_app import Connections, PageClient, connections, make_app

STATIC = Path(__file__).resolve().parents[3] / "plugins" / "logyard_ui" / "static"
T0 = TopicPartition("t", 0)


@pytest.fixture
def known() -> Iterator[Connections]:
    with connections() as made:
        yield made


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({1: "a", 2: "b", 3: "c"})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", 6, 3))
    client.create_topic(NewTopic("u", 3, 2))
    made.tick()
    made.group_commits["readers"] = {T0: 3}
    made.group_members["readers"] = 2
    made.start_offsets[T0], made.end_offsets[T0] = 1, 9
    made.sizes = dict.fromkeys(made.assignments, 100)
    return made


@pytest.fixture
def viewer(cluster: MemoryCluster, known: Connections) -> PageClient:
    return PageClient(make_app(cluster))


@pytest.fixture(scope="session")
def pure() -> Any:
    """What the pure files answer, asked of node: [file, expression] → value."""
    if shutil.which("node") is None:
        lacks("missing: node, for the view's pure functions (the browser's tests use them too)")

    def ask(file: str, expression: str, before: str = "") -> Any:
        address = json.dumps((STATIC / file).as_uri())
        script = f"{before}; const m = await import({address}); console.log(JSON.stringify(await ({expression})))"
        done = subprocess.run(
            ["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask
