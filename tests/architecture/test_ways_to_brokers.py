"""Operators reach a cluster in few ways, all by a hook: so that each works with every protocol and log-in.

tests/reference/test_operators_by_protocol.py takes each way with each protocol.
"""

import ast

from tests.support import ways_to_brokers

# Whatever connects by itself would need the settings of TLS and log-ins a second time.
CONNECT = (
    "aiokafka", "confluent_kafka", "ftplib", "http.client", "httpx", "kafka", "kazoo", "requests", "socket", "ssl",
    "urllib.request", "urllib3", "logyard.admin.cluster.client", "logyard.admin.cluster.connection",
    "logyard.admin.cluster.requests", "logyard.admin.zookeeper", "logyard.login",
)  # fmt: skip
HOOKS = "operators/hooks/"
# File → why it may connect.
OTHERS = {
    "operators/contents/schemas/fetching.py": "a schema registry is another server, with settings of its own",
    "operators/standalone_status.py": "Spark's master is asked, at the address of the Spark connection",
}

# They ask a person, choose a trigger, or are a value: no cluster is reached.
WITHOUT = {"ApprovePlanOperator", "LogyardMessageQueueProvider", "WaitEvent"}


def _imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_only_the_hooks_connect() -> None:
    found = [
        f"{path}: {name}"
        for path, tree in ways_to_brokers.modules()
        if not str(path).startswith(HOOKS) and str(path) not in OTHERS
        for name in _imported(tree)
        if any(name == each or name.startswith(f"{each}.") for each in CONNECT)
    ]
    assert found == []


def test_every_operator_has_a_way_that_is_taken_with_each_protocol() -> None:
    """One without a known way reaches a cluster by itself, or belongs to those that reach none."""
    found = ways_to_brokers.ways()
    assert len(found) > 50
    assert {name for name, ways in found.items() if not ways} == WITHOUT
    assert set().union(*found.values()) == set(ways_to_brokers.SIGNS)
